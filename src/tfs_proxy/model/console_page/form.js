// The form of a signature: one field for each input, and what is in them as TF Serving's JSON.
import { field } from "./fields.js";
import { nested } from "./npy.js";

const MOST_EXAMPLE_VALUES = 4096;

export const shapeText = (shape) => (shape === null ? "of any rank" : `[${shape.map((size) => (size < 0 ? "?" : size)).join(", ")}]`);
const dtypeText = (spec) => spec.dtype.replace("DT_", "").toLowerCase();
export const typeText = (spec) => `${dtypeText(spec)} ${shapeText(spec.shape)}`;
export const isBatched = (signature) => Object.values(signature.inputs).every((spec) => spec.shape?.[0] === -1);

// The shape that a person fills in: without the batch dimension if every input has one.
const ownShape = (spec, signature) => (isBatched(signature) ? spec.shape.slice(1) : spec.shape);

function example(spec, shape) {
  const sizes = (shape ?? []).map((size) => (size < 0 ? 1 : size));
  const count = sizes.reduce((product, size) => product * size, 1);
  if (count > MOST_EXAMPLE_VALUES) return "";
  const value = { DT_STRING: "text", DT_BOOL: false }[spec.dtype] ?? 0;
  return JSON.stringify(nested(Array(count).fill(value), sizes));
}

// What a textarea holds: JSON, else a list of values between commas or blanks; text if the input is of text.
function valueOf(text, spec, shape) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    if (spec.dtype === "DT_STRING") return text;
    const parts = text.trim().split(/[\s,;]+/).filter(Boolean);
    value = parts.map((part) => (part === "true" ? true : part === "false" ? false : Number(part)));
    if (value.some((part) => typeof part === "number" && Number.isNaN(part))) {
      throw new Error(`${text.slice(0, 40)} is not JSON, and not numbers between commas.`);
    }
  }
  const isFlat = Array.isArray(value) && !value.some(Array.isArray);
  if (isFlat && shape && shape.length > 1 && shape.every((size) => size >= 0) && value.length === shape.reduce((product, size) => product * size, 1)) {
    return nested(value, shape); // any other count goes out as it is: the server says what is wrong
  }
  return value;
}

// A box for an input of one value, which goes out as the signature has it: of several inputs, plain ones mix their records.
function inputField(name, label, spec, shape) {
  if (shape?.every((size) => size === 1)) {
    const kind = { DT_STRING: "text", DT_BOOL: "checkbox" }[spec.dtype] ?? "number";
    const made = field([name], label, { kind, step: "any", hint: dtypeText(spec) }, { text: "text", checkbox: false, number: 0 }[kind]);
    return { ...made, read: () => nested([made.read()], shape) };
  }
  const parse = (text) => valueOf(text, spec, shape);
  return field([name], label, { kind: "json", rows: 3, parse, hint: `${typeText({ ...spec, shape })}, as nested JSON or values between commas` }, example(spec, shape));
}

// `ownNames` has the graph's names of inputs by those of the model's author. The body has rows if inputs have a batch dimension.
export function signatureForm(signature, ownNames = {}) {
  const fields = Object.entries(signature.inputs).map(([name, spec]) => {
    const own = Object.keys(ownNames).find((each) => ownNames[each] === name) ?? name;
    return inputField(name, own, spec, ownShape(spec, signature));
  });
  const body = () => {
    const values = Object.fromEntries(fields.map((each) => [each.loc[0], each.read()]));
    const record = fields.length === 1 ? values[fields[0].loc[0]] : values;
    return JSON.stringify(isBatched(signature) ? { instances: [record] } : { inputs: record });
  };
  return { fields, nodes: fields.map((each) => each.node), text: body(), body };
}
