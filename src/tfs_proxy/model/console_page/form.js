// The form: one field for each input of the signature, and what is in them as TF Serving's JSON.
import { element } from "./dom.js";
import { nested } from "./npy.js";

const TEXT = new Set(["DT_STRING"]);
const MOST_EXAMPLE_VALUES = 4096;

export const shapeText = (shape) => (shape === null ? "of any rank" : `[${shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]`);
export const typeText = (spec) => `${spec.dtype.replace("DT_", "").toLowerCase()} ${shapeText(spec.shape)}`;
export const isBatched = (signature) => Object.values(signature.inputs).every((spec) => spec.shape?.[0] === -1);

// The shape that a person fills in: without the batch dimension if every input has one.
const ownShape = (spec, signature) => (isBatched(signature) ? spec.shape.slice(1) : spec.shape);

function example(spec, shape) {
  const sizes = (shape ?? []).map((size) => (size < 0 ? 1 : size));
  const count = sizes.reduce((product, size) => product * size, 1);
  if (count > MOST_EXAMPLE_VALUES) return "";
  const value = { DT_STRING: "text", DT_BOOL: false }[spec.dtype] ?? 0;
  if (TEXT.has(spec.dtype) && sizes.length === 0) return "text";
  return JSON.stringify(nested(Array(count).fill(value), sizes));
}

// `ownNames` has the graph's names of inputs by those of the model's author; `reason` says why there is no signature, if there is none.
export function showForm(panel, signature, ownNames = {}, reason = "There is no signature to make a form from: use a file or the editor.") {
  panel.replaceChildren();
  if (!signature) {
    panel.append(element("p", { class: "faint" }, reason));
    return;
  }
  Object.entries(signature.inputs).forEach(([name, spec], index) => {
    const shape = ownShape(spec, signature);
    const area = element("textarea", { id: `input-${index}`, rows: shape?.length ? 3 : 1, spellcheck: "false", "aria-describedby": `input-${index}-type` });
    area.dataset.input = name;
    area.value = example(spec, shape);
    const hint = `${typeText({ ...spec, shape })}${isBatched(signature) ? ", one record" : ""}; nested JSON, or its values between commas`;
    panel.append(element("div", { class: "field" }, element("label", { for: area.id }, Object.keys(ownNames).find((own) => ownNames[own] === name) ?? name), area, element("span", { id: `input-${index}-type`, class: "faint" }, hint)));
  });
}

// What a field holds: JSON, else a list of values between commas or blanks; text if the input is of text.
// A plain value becomes a list of one where the signature has those: of several inputs, plain ones mix their records.
function valueOf(text, spec, shape) {
  const isOne = Boolean(shape?.every((size) => size === 1));
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    if (TEXT.has(spec.dtype)) return isOne ? nested([text], shape) : text;
    const parts = text.trim().split(/[\s,;]+/).filter(Boolean);
    value = parts.map((part) => (part === "true" ? true : part === "false" ? false : Number(part)));
    if (value.some((part) => typeof part === "number" && Number.isNaN(part))) {
      throw new Error(`${text.slice(0, 40)} is not JSON, and not numbers between commas.`);
    }
    if (shape?.length === 0 && value.length === 1) return value[0];
  }
  if (TEXT.has(spec.dtype) && shape?.length === 0 && typeof value !== "string") return text;
  if (isOne && !Array.isArray(value)) return nested([TEXT.has(spec.dtype) && typeof value !== "string" ? text : value], shape);
  const isFlat = Array.isArray(value) && !value.some(Array.isArray);
  if (isFlat && shape && shape.length > 1 && shape.every((size) => size >= 0) && value.length === shape.reduce((product, size) => product * size, 1)) {
    return nested(value, shape); // any other count goes out as it is: the server says what is wrong
  }
  return value;
}

// The form as JSON text, in rows if inputs have a batch dimension. An error has the field's element.
export function formBody(panel, signature) {
  const values = {};
  for (const area of panel.querySelectorAll("textarea")) {
    const spec = signature.inputs[area.dataset.input];
    try {
      values[area.dataset.input] = valueOf(area.value, spec, ownShape(spec, signature));
    } catch (error) {
      error.field = area;
      throw error;
    }
  }
  const names = Object.keys(values);
  const record = names.length === 1 ? values[names[0]] : values;
  return JSON.stringify(isBatched(signature) ? { instances: [record] } : { inputs: record });
}
