// What a script declares of its requests' bodies (tfs_proxy.describe): an example of a type, as fields and as text.
import { element } from "./dom.js";

const DEEPEST = 8;
const PLAIN = { integer: 0, number: 0, string: "text", boolean: false };
const isMembers = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// A value that fits a JSON schema, for a person to change.
function sample(schema, root, depth = 0) {
  if (!isMembers(schema) || depth > DEEPEST) return null;
  const own = (part) => sample(part, root, depth + 1);
  if (schema.$ref) return own(schema.$ref.split("/").slice(1).reduce((part, name) => part?.[name], root));
  const given = [schema.examples?.[0], schema.default, schema.const, schema.enum?.[0]].find((each) => each !== undefined && each !== null);
  if (given !== undefined) return given;
  const some = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (some) return own(some[0]);
  if (schema.properties || schema.type === "object") return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, part]) => [name, own(part)]));
  if (schema.type === "array") return schema.prefixItems ? schema.prefixItems.map(own) : schema.items ? [own(schema.items)] : [];
  return PLAIN[schema.type] ?? null;
}

export const declaredText = (type, { schema, example }) => example ?? (/json$/.test(type) ? JSON.stringify(sample(schema, schema)) : "");

// A field for each member of a JSON object, else one for the whole body.
export function showDeclared(panel, type, declared) {
  const text = declaredText(type, declared);
  let value = null;
  try {
    value = JSON.parse(text);
  } catch { /* text of another type is one field */ }
  const fields = isMembers(value) ? Object.entries(value).map(([name, part]) => [name, JSON.stringify(part)]) : [["body", text]];
  panel.replaceChildren(...fields.map(([name, shown], index) => {
    const area = element("textarea", { id: `declared-${index}`, rows: shown.length > 60 || !isMembers(value) ? 3 : 1, spellcheck: "false" });
    area.value = shown;
    if (isMembers(value)) area.dataset.member = name;
    return element("div", { class: "field" }, element("label", { for: area.id }, name), area, element("span", { class: "faint" }, isMembers(value) ? "JSON, or text" : type));
  }));
}

function written(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// What the fields hold, as the body.
export function declaredBody(panel) {
  const areas = [...panel.querySelectorAll("textarea")];
  const members = areas.filter((area) => area.dataset.member !== undefined);
  if (!members.length) return areas[0]?.value ?? "";
  return JSON.stringify(Object.fromEntries(members.map((area) => [area.dataset.member, written(area.value)])));
}
