// What is served, as tables: models, versions, signatures, and whether a script stands before them.
import { byId, element } from "./dom.js";
import { typeText } from "./form.js";

const SCRIPTS = {
  "the model": "The script is the model.",
  true: "A script (inference.py) sees every request to /invocations.",
  false: "There is no script: bodies are converted by their type and the signature.",
};

export const defaultFirst = ([one], [other]) => (other === "serving_default") - (one === "serving_default") || one.localeCompare(other);

function specs(title, of) {
  const rows = Object.entries(of).map(([name, spec]) => element("tr", {}, element("td", {}, title), element("td", {}, element("code", {}, name)), element("td", {}, typeText(spec))));
  return rows.length ? rows : [element("tr", {}, element("td", {}, title), element("td", {}, "–"), element("td", {}, ""))];
}

function signatureTable(name, { method, inputs, outputs }) {
  const caption = element("caption", { class: "faint" }, `${name}, ${method.split("/").at(-1)}`);
  const head = element("tr", {}, ...["", "Name", "Type and shape"].map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))));
  return element("div", { class: "scroll" }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...specs("input", inputs), ...specs("output", outputs))));
}

// `models` has versions by model, `labels` the labels of each model.
export function showServed(script, models, defaultModel, labels) {
  const parts = [element("p", {}, SCRIPTS[script] ?? "Each model may have a script of its own.")];
  for (const [model, versions] of Object.entries(models)) {
    for (const [number, version] of Object.entries(versions)) {
      const title = `${model}${number ? `, version ${number}` : ""}${model === defaultModel && Object.keys(models).length > 1 ? " (default)" : ""}`;
      const { serving_default: first, ...others } = version.signatures ?? {};
      if (JSON.stringify(others.serve) === JSON.stringify(first)) delete others.serve; // Keras exports the same function by this name, too
      const tables = Object.entries(first ? { serving_default: first, ...others } : others).sort(defaultFirst).filter(([, each]) => Object.keys(each.outputs).length).map(([name, each]) => signatureTable(name, each));
      parts.push(element("div", {}, element("h3", {}, title), version.reason ? element("p", { class: "error" }, version.reason) : null, ...tables));
    }
    const names = labels(model);
    if (names.length) parts.push(element("p", { class: "faint" }, `Labels of ${model}: ${names.join(", ")}`));
  }
  byId("served").replaceChildren(...parts);
}
