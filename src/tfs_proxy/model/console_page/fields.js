// One field of a form: the control of its kind, what stands beside it, and what a person has put in.
import { element } from "./dom.js";

const READ = {
  number: (control) => {
    if (!Number.isFinite(control.valueAsNumber)) throw new Error("A number belongs here.");
    return control.valueAsNumber;
  },
  text: (control) => control.value,
  checkbox: (control) => control.checked,
  choice: (control) => JSON.parse(control.value),
};

function controlOf({ kind, choices, isRequired, empty, min, max, step, rows = 1 }, value) {
  if (kind === "choice") {
    const given = choices.map((each) => [JSON.stringify(each), String(each)]);
    const options = isRequired && empty !== null ? given : [["", "–"], ...given];
    const select = element("select", {}, ...options.map(([text, shown]) => element("option", { value: text }, shown)));
    select.value = value === undefined || value === null ? options[0][0] : JSON.stringify(value);
    return select;
  }
  if (kind === "checkbox") {
    const box = element("input", { type: "checkbox" });
    box.checked = Boolean(value);
    return box;
  }
  const control = kind === "json" ? element("textarea", { rows, spellcheck: "false" }) : element("input", { type: kind, min, max, step, autocomplete: "off" });
  control.value = value ?? "";
  return control;
}

// `loc` is the way to the value in the body, as the server's `details` have it. `spec.parse` reads a textarea;
// `spec.empty` stands for an empty control, undefined for a value that is left out.
export function field(loc, label, spec, value) {
  const id = `input-${encodeURIComponent(loc.join("-"))}`; // without blanks, which part ids
  const control = controlOf(spec, value);
  control.id = id;
  control.dataset.input = loc.join(".");
  const isMarked = spec.isRequired && spec.kind !== "checkbox";
  if (isMarked) control.required = true;
  const mark = isMarked ? element("span", { class: "faint mark", "aria-hidden": "true" }, "required") : null;
  const hint = spec.hint ? element("span", { id: `${id}-hint`, class: "faint" }, spec.hint) : null;
  if (hint) control.setAttribute("aria-describedby", hint.id);
  const node = element("div", { class: `field ${spec.kind}` }, element("label", { for: id }, label, mark && " ", mark), control, hint);
  const read = () => {
    const isEmpty = spec.kind !== "checkbox" && control.value.trim() === "" && !control.validity.badInput;
    if (isEmpty && "empty" in spec) return spec.empty;
    try {
      return spec.kind === "json" ? spec.parse(control.value) : READ[spec.kind](control);
    } catch (error) {
      throw Object.assign(error, { field: control });
    }
  };
  return { loc, control, node, read };
}

// The field at a place of the body, or around it, or the first below it; records of a list have the same fields.
export function fieldAt(fields, loc) {
  const names = typeof loc[0] === "number" ? loc.slice(1) : loc;
  if (!names.length) return null;
  return fields.find((each) => each.loc.every((name, depth) => depth >= names.length || name === names[depth])) ?? null;
}
