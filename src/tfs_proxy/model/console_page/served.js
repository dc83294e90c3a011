// What is served, as tables: models, versions, signatures, and whether a script stands before them.
import { byId, element } from "./dom.js";
import { typeText } from "./form.js";

const SCRIPTS = {
  "the model": "The script is the model.",
  true: "A script (inference.py) sees every request to /invocations.",
  false: "There is no script: bodies are converted by their type and the signature.",
};

// The signature of a request that names none, as the server chooses it: the only one that can be asked if there is no serving_default.
export function defaultOf(signatures) {
  if ("serving_default" in signatures) return "serving_default";
  const usable = Object.keys(signatures).filter((name) => Object.keys(signatures[name].inputs).length && Object.keys(signatures[name].outputs).length);
  const ofRecords = usable.filter((name) => Object.values(signatures[name].inputs).some((spec) => spec.shape?.length !== 0));
  const found = ofRecords.length ? ofRecords : usable;
  return found.length === 1 ? found[0] : null;
}

// Names and signatures, the default one first.
export function inOrder(signatures) {
  const first = defaultOf(signatures);
  return Object.entries(signatures).sort(([one], [other]) => (other === first) - (one === first) || one.localeCompare(other));
}

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
      const tables = inOrder(first ? { serving_default: first, ...others } : others).filter(([, each]) => Object.keys(each.outputs).length).map(([name, each]) => signatureTable(name, each));
      parts.push(element("div", {}, element("h3", {}, title), version.reason ? element("p", { class: "error" }, version.reason) : null, ...tables));
    }
    const names = labels(model);
    if (names.length) parts.push(element("p", { class: "faint" }, `Labels of ${model}: ${names.join(", ")}`));
  }
  byId("served").replaceChildren(...parts);
}
