// What a script declares of its requests' bodies, by annotations or tfs_proxy.describe, as a form.
import { element } from "./dom.js";
import { field } from "./fields.js";

const DEEPEST = 8;
const isMembers = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// A schema behind its references, and whether null fits it, too; a choice of several stays one.
function resolved(schema, root, depth = 0) {
  if (!isMembers(schema) || depth > DEEPEST) return {};
  const { $ref, anyOf, oneOf, allOf, ...own } = schema;
  if ($ref) return { ...resolved($ref.split("/").slice(1).reduce((part, name) => part?.[name], root), root, depth + 1), ...own };
  const all = anyOf ?? oneOf ?? allOf;
  if (!all) return own;
  const some = all.filter((part) => part.type !== "null");
  if (some.length !== 1) return { ...own, some };
  return { ...resolved(some[0], root, depth + 1), ...own, isNullable: some.length < all.length };
}

function sampleNumber({ minimum, exclusiveMinimum, maximum, exclusiveMaximum }) {
  const least = minimum ?? (exclusiveMinimum === undefined ? -Infinity : exclusiveMinimum + 1);
  const most = maximum ?? (exclusiveMaximum === undefined ? Infinity : exclusiveMaximum - 1);
  return least > most ? (least + most) / 2 : Math.min(most, Math.max(least, 0));
}

// A value that fits a JSON schema, for a person to change; undefined for one that may be left out.
function sample(schema, root, depth = 0) {
  const part = resolved(schema, root);
  if (depth > DEEPEST) return null;
  const own = (inner) => sample(inner, root, depth + 1);
  const given = [part.examples?.[0], part.default, part.const, part.enum?.[0]].find((each) => each !== undefined && each !== null);
  if (given !== undefined) return given;
  if (part.default === null) return undefined;
  if (part.some) return own(part.some[0]);
  if (part.properties || part.type === "object") return Object.fromEntries(Object.entries(part.properties ?? {}).map(([name, inner]) => [name, own(inner)]));
  if (part.type === "array") return part.prefixItems ? part.prefixItems.map(own) : part.items ? [own(part.items)] : [];
  if (part.type === "integer" || part.type === "number") return sampleNumber(part);
  return { string: "text", boolean: false }[part.type] ?? null;
}

// The limits of a number or of a text's length, in words.
function limitsText({ type, minimum, exclusiveMinimum, maximum, exclusiveMaximum, minLength, maxLength }) {
  if (minimum !== undefined && maximum !== undefined) return `${minimum} to ${maximum}`;
  const limits = [["at least", minimum ?? minLength], ["above", exclusiveMinimum], ["at most", maximum ?? maxLength], ["below", exclusiveMaximum]];
  const unit = type === "string" ? " characters" : "";
  return limits.filter(([, limit]) => limit !== undefined).map(([words, limit]) => `${words} ${limit}${unit}`).join(", ");
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is not JSON: ${error.message}`);
  }
}

function parsedOrText(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function specOf(part, isRequired) {
  const kinds = { integer: "number", number: "number", string: "text", boolean: part.isNullable ? "choice" : "checkbox" };
  const choices = part.enum ?? (part.const === undefined ? null : [part.const]);
  const kind = choices ? "choice" : kinds[part.type] ?? "json";
  const types = { integer: "whole number", array: "list as JSON", object: "object as JSON", undefined: "JSON, or text" };
  const limits = choices ? "" : [types[part.type], limitsText(part)].filter(Boolean).join(", ");
  return {
    kind, choices: choices ?? [true, false], isRequired, min: part.minimum, max: part.maximum, step: part.type === "integer" ? 1 : "any",
    parse: part.type ? parsed : parsedOrText,
    empty: !isRequired ? undefined : part.isNullable ? null : part.type === "string" ? "" : undefined,
    hint: [part.description, limits && limits[0].toUpperCase() + limits.slice(1)].filter(Boolean).join(" "),
  };
}

// Fields of an object's members, those of objects in it below their name; `fields` gets each.
function memberNodes(part, root, loc, value, fields) {
  return Object.entries(part.properties).map(([name, schema]) => {
    const inner = resolved(schema, root);
    const place = [...loc, name];
    const isRequired = part.required?.includes(name) ?? false;
    if (inner.properties && isRequired && !inner.isNullable && place.length < DEEPEST) {
      const nodes = memberNodes(inner, root, place, value?.[name] ?? {}, fields);
      const said = inner.description ? element("p", { class: "faint" }, inner.description) : null;
      return element("fieldset", {}, element("legend", {}, name), said, ...nodes);
    }
    const spec = specOf(inner, isRequired);
    const own = value?.[name] ?? undefined;
    const shown = spec.kind === "json" && own !== undefined ? JSON.stringify(own) : own;
    const made = field(place, name, { ...spec, rows: shown?.length > 60 ? 3 : 1 }, shown);
    fields.push(made);
    return made.node;
  });
}

function put(body, loc, value) {
  const inner = loc.slice(0, -1).reduce((part, name) => (part[name] ??= {}), body);
  if (value !== undefined) inner[loc.at(-1)] = value;
}

// A form of a type's body: of a JSON object a field for each member, of a list of them those of one record, else one for all.
export function declaredForm(type, { schema, example }) {
  const whole = resolved(schema, schema);
  const isList = whole.type === "array" && Boolean(resolved(whole.items, schema).properties);
  const record = isList ? resolved(whole.items, schema) : whole;
  const isJson = /json$/.test(type);
  const given = isJson && example !== null ? parsedOrText(example) : example ?? (isJson ? sample(schema, schema) : "");
  const value = isList && Array.isArray(given) ? given[0] : given;
  const members = record.properties || !isMembers(value) || !isJson ? record : { properties: Object.fromEntries(Object.keys(value).map((name) => [name, {}])) };
  const fields = [];
  if (!isJson || !Object.keys(members.properties ?? {}).length) {
    const text = typeof given === "string" ? given : JSON.stringify(given) ?? "";
    fields.push(field(["body"], "body", { kind: "json", rows: 3, hint: type, parse: (typed) => typed }, text));
    return { fields, nodes: [fields[0].node], text, body: () => fields[0].read() };
  }
  const nodes = memberNodes(members, schema, [], value, fields);
  const body = () => {
    const made = {};
    for (const each of fields) put(made, each.loc, each.read());
    return JSON.stringify(isList ? [made] : made);
  };
  return { fields, nodes, text: example ?? body(), body };
}
