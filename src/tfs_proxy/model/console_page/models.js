// The models of a run in which they come and go: what there is, and loading and unloading.
import { byId, element } from "./dom.js";
import { ask as askServer } from "./key.js";

const NOT_LOADED = "not loaded";

async function getJson(path) {
  const answer = await askServer(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw Object.assign(new Error(`${path} answers ${answer.status}`), { status: answer.status });
  return answer.json();
}

export const getFacts = () => getJson("console/facts.json");

// What a person can choose, by the text of the choice: an archive with one model is called as the archive is.
// `known` has versions by choice from before, so that signatures are asked for once.
export function choicesOf(archives, known) {
  const models = {};
  const places = {};
  for (const [archive, { state, served }] of Object.entries(archives)) {
    const names = Object.keys(served);
    for (const name of names.length ? names : [null]) {
      const inner = name?.startsWith(`${archive}.`) ? name.slice(archive.length + 1) : name; // as requests to the archive name it
      const choice = names.length > 1 ? `${archive} / ${inner}` : archive;
      places[choice] = { archive, served: name, inner: names.length > 1 ? inner : null, isLoaded: state !== NOT_LOADED };
      const numbers = name === null ? [] : served[name].length ? served[name] : [""];
      models[choice] = Object.fromEntries(numbers.map((number) => [number, known[choice]?.[number] ?? { signatures: null }]));
    }
  }
  return { models, places };
}

// TF Serving's metadata as the page has signatures.
function fromMetadata(metadata) {
  const tensors = (of) => Object.fromEntries(Object.entries(of ?? {}).map(([name, info]) => [name, { dtype: info.dtype, shape: info.tensor_shape?.unknown_rank ? null : (info.tensor_shape?.dim ?? []).map((dim) => Number(dim.size)) }]));
  const all = metadata.metadata?.signature_def?.signature_def ?? {};
  return Object.fromEntries(Object.entries(all).filter(([, each]) => each.method_name).map(([name, each]) => [name, { method: each.method_name, inputs: tensors(each.inputs), outputs: tensors(each.outputs) }]));
}

// Fills in the signatures of one version, if they have not been asked for.
export async function learnSignatures(versions, number, place) {
  const version = versions[number];
  if (!version || version.signatures) return;
  version.signatures = {};
  try {
    const path = number ? `/versions/${number}` : "";
    version.signatures = fromMetadata(await getJson(`v1/models/${encodeURIComponent(place.served)}${path}/metadata`));
  } catch (error) {
    version.reason = error.message;
  }
}

function row(name, { state, reason, served, url }, act) {
  const isLoaded = state === "ready" || state === "failed";
  const verb = isLoaded ? "Unload" : state === NOT_LOADED ? "Load" : null;
  const button = verb && element("button", { type: "button", "aria-label": `${verb} ${name}` }, verb);
  button?.addEventListener("click", () => act(verb, name, url, button));
  const contents = Object.entries(served).map(([model, numbers]) => `${model}${numbers.length ? `, version ${numbers.join(", ")}` : ""}`).join("; ");
  const shown = element("span", { class: `pill ${state === "ready" ? "good" : state === "failed" ? "bad" : ""}` }, state);
  return element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, shown, reason ? element("p", { class: "error" }, reason) : null), element("td", {}, contents), element("td", {}, button));
}

// Shows all archives; `changed` is called once one has been loaded or unloaded.
export function showModels({ archives }, changed) {
  const act = async (verb, name, url, button) => {
    button.disabled = true;
    if (verb === "Load") await load(name, url);
    else await ask(`Unloading ${name} …`, `models/${encodeURIComponent(name)}`, { method: "DELETE" }, `${name} is unloaded.`);
    await changed();
  };
  const rows = Object.entries(archives).map(([name, archive]) => row(name, archive, act));
  const focused = document.activeElement?.closest("#models") ? document.activeElement.closest("tr").firstChild.textContent : null;
  byId("models").replaceChildren(...rows);
  byId("models-table").hidden = !rows.length;
  byId("models-none").hidden = rows.length > 0;
  if (focused !== null) rows.find((each) => each.firstChild.textContent === focused)?.querySelector("button")?.focus();
}

// Asks, and says how it went; the server's sentence if it did not go well, else null.
async function ask(meanwhile, path, request, done) {
  const note = byId("models-note");
  note.className = "faint";
  note.textContent = meanwhile;
  try {
    const answer = await askServer(path, request);
    const sentence = answer.ok ? null : ((await answer.json()).error ?? `The answer is ${answer.status}.`);
    note.textContent = sentence ?? done;
    note.className = sentence === null ? "faint" : "error";
    return sentence;
  } catch (error) {
    note.textContent = `No answer: ${error.message}`;
    note.className = "error";
    return note.textContent;
  }
}

function load(name, url) {
  const headers = { "Content-Type": "application/json" };
  return ask(`Loading ${name} …`, "models", { method: "POST", headers, body: JSON.stringify({ model_name: name, url }) }, `${name} is loaded.`);
}

// `changed` is called with the name that has been loaded.
export function wireLoad(changed) {
  byId("load").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [name, url] = [byId("load-name").value.trim(), byId("load-url").value.trim()];
    byId("load-send").disabled = true;
    const sentence = await load(name, url);
    byId("load-send").disabled = false;
    const field = sentence === null ? null : byId(/model_name/.test(sentence) ? "load-name" : "load-url");
    for (const each of [byId("load-name"), byId("load-url")]) {
      if (each === field) each.setAttribute("aria-invalid", "true");
      else each.removeAttribute("aria-invalid");
    }
    field?.focus();
    await changed(sentence === null ? name : null);
  });
}
