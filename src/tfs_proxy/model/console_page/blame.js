// Which field the server's sentence is about: it stands there, and the field has the focus.
import { byId, element } from "./dom.js";
import { fieldAt } from "./fields.js";

export function clearBlame() {
  for (const sentence of document.querySelectorAll(".error")) sentence.remove();
  for (const field of document.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
}

function inputNamed(sentence) {
  const fields = [...document.querySelectorAll("#panel-form [data-input]")];
  return fields.find((field) => sentence.includes(`"${field.dataset.input}"`) || sentence.includes(`'${field.dataset.input}'`)) ?? (fields.length === 1 ? fields[0] : null);
}

// On a phone some fields are behind a button.
export function showMore(isShown) {
  byId("more").setAttribute("aria-expanded", String(isShown));
}

// `way` is how the body was given: form, file or text.
export function fieldOf(status, sentence, way) {
  const body = { form: inputNamed(sentence), file: byId("file"), text: byId("body") }[way];
  if (status === 415) return way === "form" ? body : byId("content-type");
  if (status === 406) return byId("accept");
  if (status === 404 && /version|label/i.test(sentence) && byId("version").value) return byId("version");
  if (status === 404 || /tfs-model-name/.test(sentence)) return byId("model");
  if (/tfs-model-(version|label)/.test(sentence)) return byId("version");
  if (/signature/i.test(sentence) && !/expected|shape/.test(sentence)) return byId("signature");
  if (status >= 400 && status < 500) return body;
  return null;
}

// TensorFlow names nodes of its graph, which say nothing to a person: the answer's JSON has them still.
export const withoutGraph = (sentence) => sentence.replace(/\[\[[A-Za-z{][^\]]*\]\]|\{\{(function_)?node [^}]*\}\}|\[Op:\w+\]/g, "").replace(/\s+/g, " ").trim();

// Shows the sentence at the field, or above the button if no field is to blame.
export function blame(field, sentence) {
  const shown = element("p", { class: "error", role: "alert" }, sentence);
  if (field?.closest(".more")) showMore(true);
  if (!field || !field.offsetParent) {
    byId("send").closest(".row").before(shown);
    return;
  }
  shown.id = `${field.id}-error`;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", shown.id);
  (field.id === "file" ? byId("drop") : field.closest(".field")).append(shown);
  field.focus();
}

// Shows each of the server's `details` at the field of its place, the first with the focus; false if one has no field.
export function blameEach(fields, details) {
  const faults = details.map(({ loc, msg }) => [fieldAt(fields, loc), msg]);
  if (!faults.length || faults.some(([each]) => !each)) return false;
  for (const [each, sentence] of faults.reverse()) blame(each.control, sentence);
  return true;
}
