// The page's one entrance: learns what is served, makes requests of what is filled in, shows answers.
import { showAnswer } from "./answer.js";
import { blame, clearBlame, fieldOf } from "./blame.js";
import { byId, element, fillSelect, tabs } from "./dom.js";
import { formBody, showForm, typeText } from "./form.js";
import { refresh, watch } from "./metrics.js";
import { readNpy, shapeOf } from "./npy.js";
import { CLIENTS } from "./snippets.js";

const TYPES = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", csv: "text/csv", npy: "application/x-npy", npz: "application/x-npz", json: "application/json",
  jsonl: "application/jsonlines", jsonlines: "application/jsonlines", ndjson: "application/jsonlines", tfrecord: "application/x-tfrecord", txt: "text/plain",
};
const ACCEPTS = ["*/*", "application/json", "application/jsonlines", "text/csv", "application/x-npy", "application/x-npz"];
const MOST_EDITED_BYTES = 1024 * 1024;
const METHODS = { "tensorflow/serving/classify": "classify", "tensorflow/serving/regress": "regress" };
const state = { facts: null, file: null, way: "form", client: 0, filled: null };

const versionsOf = (model) => state.facts.models[model] ?? {};
const newest = (model) => Object.keys(versionsOf(model)).sort((one, other) => Number(one) - Number(other)).at(-1);
const signatures = () => versionsOf(byId("model").value)[byId("version").value || newest(byId("model").value)]?.signatures ?? {};
const signature = () => signatures()[byId("signature").value] ?? null;

async function getJson(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${path} answers ${answer.status}`);
  return answer.json();
}

// TF Serving's metadata as the page has signatures; only needed if many models come and go.
function fromMetadata(metadata) {
  const tensors = (of) => Object.fromEntries(Object.entries(of ?? {}).map(([name, info]) => [name, { dtype: info.dtype, shape: info.tensor_shape?.unknown_rank ? null : (info.tensor_shape?.dim ?? []).map((dim) => Number(dim.size)) }]));
  const all = metadata.metadata?.signature_def?.signature_def ?? {};
  return Object.fromEntries(Object.entries(all).filter(([, each]) => each.method_name).map(([name, each]) => [name, { method: each.method_name, inputs: tensors(each.inputs), outputs: tensors(each.outputs) }]));
}

async function learnSignatures(model) {
  const versions = versionsOf(model);
  if (!state.facts.manyModels || Object.keys(versions).length) return;
  state.facts.models[model] = { "": { signatures: {} } };
  try {
    const metadata = await getJson(`v1/models/${encodeURIComponent(model)}/metadata`);
    state.facts.models[model] = { [metadata.model_spec?.version ?? ""]: { signatures: fromMetadata(metadata) } };
  } catch { /* a script that is the model has none */ }
}

function showVersions() {
  const model = byId("model").value;
  const numbers = Object.keys(versionsOf(model)).filter(Boolean).sort((one, other) => Number(other) - Number(one));
  fillSelect(byId("version"), [["", numbers.length ? `newest (${numbers[0]})` : "newest"], ...numbers.map((number) => [number, number])]);
  byId("version").disabled = state.facts.script === "the model";
}

function showSignatures() {
  const names = Object.entries(signatures()).sort(defaultFirst).map(([name]) => name).filter((name) => name !== "__saved_model_init_op");
  fillSelect(byId("signature"), names.length ? names.map((name) => [name, name]) : [["", "none"]]);
  byId("signature").disabled = !names.length;
  showInput();
}

function showInput() {
  showForm(byId("panel-form"), signature());
  byId("body").value = signature() ? formBody(byId("panel-form"), signature()) : "";
  checkBody();
  update();
}

const defaultFirst = ([one], [other]) => (other === "serving_default") - (one === "serving_default") || one.localeCompare(other);

function specs(title, of) {
  const rows = Object.entries(of).map(([name, spec]) => element("tr", {}, element("td", {}, title), element("td", {}, element("code", {}, name)), element("td", {}, typeText(spec))));
  return rows.length ? rows : [element("tr", {}, element("td", {}, title), element("td", {}, "–"), element("td", {}, ""))];
}

function showServed() {
  const { script, models, defaultModel } = state.facts;
  const scripts = { true: "A script (inference.py) sees every request to /invocations.", false: "There is no script: bodies are converted by their type and the signature." };
  const parts = [element("p", {}, script === "the model" ? "The script is the model." : (scripts[script] ?? "Each model may have a script of its own."))];
  for (const [model, versions] of Object.entries(models)) {
    for (const [number, version] of Object.entries(versions)) {
      const title = `${model}${number ? `, version ${number}` : ""}${model === defaultModel && Object.keys(models).length > 1 ? " (default)" : ""}`;
      const tables = Object.entries(version.signatures).sort(defaultFirst).filter(([, each]) => Object.keys(each.outputs).length).map(([name, each]) => {
        const caption = element("caption", { class: "faint" }, `${name}, ${each.method.split("/").at(-1)}`);
        const head = element("tr", {}, ...["", "Name", "Type and shape"].map((text) => (text ? element("th", { scope: "col" }, text) : element("td"))));
        return element("div", { class: "scroll" }, element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...specs("input", each.inputs), ...specs("output", each.outputs))));
      });
      parts.push(element("div", {}, element("h3", {}, title), version.reason ? element("p", { class: "error" }, version.reason) : null, ...tables));
    }
  }
  byId("served").replaceChildren(...parts);
}

// What is sent, and what the snippets show; throws with `field` if the form can't be read.
function currentRequest() {
  const model = byId("model").value;
  const isOneOfMany = state.facts.manyModels;
  const attributes = [];
  if (!isOneOfMany && Object.keys(state.facts.models).length > 1) attributes.push(`tfs-model-name=${model}`);
  if (byId("version").value) attributes.push(`tfs-model-version=${byId("version").value}`);
  const name = byId("signature").value;
  if (name && name !== "serving_default") attributes.push(`tfs-signature-name=${name}`);
  const method = METHODS[signature()?.method];
  if (method) attributes.push(`tfs-method=${method}`);
  const headers = { "Content-Type": byId("content-type").value, Accept: byId("accept").value };
  if (attributes.length) headers["X-Amzn-SageMaker-Custom-Attributes"] = attributes.join(",");
  for (const each of Object.keys(headers)) if (!headers[each]) delete headers[each];
  const isFile = state.way === "file";
  const text = isFile ? "" : state.way === "form" && signature() ? formBody(byId("panel-form"), signature()) : byId("body").value;
  const path = isOneOfMany ? `models/${encodeURIComponent(model)}/invoke` : "invocations";
  return {
    url: new URL(path, document.baseURI).href, headers, text, file: isFile ? (state.file?.name ?? "FILE") : null, body: isFile ? state.file : text, model, isOneOfMany,
    version: byId("version").value, signature: signature(), signatureName: name, hasScript: Boolean(state.facts.script),
  };
}

function update() {
  let text;
  try {
    text = CLIENTS[state.client][1](currentRequest());
  } catch (error) {
    text = error.message;
  }
  byId("snippet").textContent = text;
}

// What the page itself knows of a body, for those that the server passes on as they are.
async function known(request) {
  if (request.file !== null) {
    const array = readNpy(await request.body.slice(0, MOST_EDITED_BYTES).arrayBuffer());
    if (array) return `sent: ${array.dtype} [${array.shape.join(", ")}]`;
    if (!byId("preview").hidden) return `sent: a picture of ${byId("preview").naturalWidth} by ${byId("preview").naturalHeight}; the script decodes it`;
    return `sent: ${request.body.size} bytes`;
  }
  try {
    const body = JSON.parse(request.text);
    const values = body.instances ?? body.inputs;
    return `passed on as JSON: [${shapeOf(values).join(", ")}]`;
  } catch {
    return null;
  }
}

async function send() {
  clearBlame();
  let request;
  try {
    request = currentRequest();
  } catch (error) {
    blame(error.field, error.message);
    return;
  }
  if (state.way === "file" && !state.file) {
    blame(byId("file"), "Choose a file first.");
    return;
  }
  byId("send").disabled = true;
  byId("send-note").textContent = "waiting for the answer …";
  const began = performance.now();
  try {
    const response = await fetch(request.url, { method: "POST", headers: { ...request.headers, "X-Tfs-Proxy-Timing": "1" }, body: request.body });
    const buffer = await response.arrayBuffer();
    showAnswer(response, buffer, performance.now() - began, await known(request), request.signature);
    byId("send").disabled = false;
    if (!response.ok) explain(response.status, buffer);
  } catch (error) {
    blame(null, `No answer: ${error.message}`);
  }
  byId("send").disabled = false;
  byId("send-note").textContent = "";
  refresh();
}

function explain(status, buffer) {
  const text = new TextDecoder().decode(buffer);
  let sentence = text;
  try {
    sentence = JSON.parse(text).error ?? text;
  } catch { /* it is no JSON: shown as it is */ }
  blame(fieldOf(status, String(sentence), state.way), String(sentence) || `The answer is a ${status} without a word.`);
}

async function take(file) {
  clearBlame();
  state.file = file;
  const ending = file.name.toLowerCase().split(".").at(-1);
  const type = TYPES[ending] ?? (file.type || "application/octet-stream");
  byId("content-type").value = type;
  byId("file-name").textContent = `${file.name}, ${file.size} bytes`;
  const preview = byId("preview");
  if (preview.src) URL.revokeObjectURL(preview.src);
  preview.hidden = !type.startsWith("image/");
  if (preview.hidden) preview.removeAttribute("src");
  else {
    preview.src = URL.createObjectURL(file);
    preview.alt = file.name;
  }
  if (/json|csv|plain/.test(type) && file.size <= MOST_EDITED_BYTES) byId("body").value = await file.text();
  update();
}

function checkBody() {
  const type = byId("content-type").value;
  let note = "";
  if (/^application\/json/.test(type) && byId("body").value.trim()) {
    try {
      JSON.parse(byId("body").value);
      note = "valid JSON";
    } catch (error) {
      note = `not JSON yet: ${error.message}`;
    }
  }
  byId("body-note").textContent = note;
}

function chooseWay(tab) {
  state.way = tab.id.replace("tab-", "");
  for (const way of ["form", "file", "text"]) byId(`panel-${way}`).hidden = way !== state.way;
  if (state.way === "form") byId("content-type").value = "application/json";
  checkBody();
  update();
}

function wireFiles(chooseTab) {
  const drop = byId("drop");
  const target = document.documentElement; // a file that misses the box must not replace the page
  target.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  target.addEventListener("dragleave", () => drop.classList.remove("over"));
  target.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (!event.dataTransfer.files.length) return;
    chooseTab(byId("tab-file"));
    take(event.dataTransfer.files[0]);
  });
  byId("file").addEventListener("change", () => byId("file").files.length && take(byId("file").files[0]));
}

function wire() {
  const chooseTab = tabs(byId("try").querySelector("[role=tablist]"), chooseWay);
  byId("clients").append(...CLIENTS.map(([name], index) => element("button", { type: "button", role: "tab", id: `client-${index}`, "aria-controls": "snippet" }, name)));
  const chooseClient = tabs(byId("clients"), (tab) => { state.client = Number(tab.id.replace("client-", "")); update(); });
  byId("model").addEventListener("change", async () => { await learnSignatures(byId("model").value); showVersions(); showSignatures(); showServed(); });
  byId("version").addEventListener("change", showSignatures);
  byId("signature").addEventListener("change", showInput);
  byId("request").addEventListener("input", () => { checkBody(); update(); });
  byId("request").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("copy").addEventListener("click", copy);
  wireFiles(chooseTab);
  chooseClient(byId("client-0"));
  return chooseTab;
}

async function copy() {
  try {
    await navigator.clipboard.writeText(byId("snippet").textContent);
    byId("copy").textContent = "Copied";
  } catch { // only pages of https or localhost may write to the clipboard
    getSelection().selectAllChildren(byId("snippet"));
    byId("copy").textContent = "Selected";
  }
  setTimeout(() => { byId("copy").textContent = "Copy"; }, 1500);
}

async function start() {
  watch();
  state.facts = await getJson("console/facts.json");
  const models = Object.keys(state.facts.models);
  byId("server").textContent = state.facts.server;
  byId("title").textContent = state.facts.defaultModel || "tfs_proxy";
  document.title = `${state.facts.defaultModel || "tfs_proxy"}: try the model`;
  const known = models.length ? models : [state.facts.defaultModel].filter(Boolean);
  fillSelect(byId("model"), known.length ? known.map((name) => [name, name]) : [["", "none loaded"]]);
  if (state.facts.defaultModel) byId("model").value = state.facts.defaultModel;
  byId("content-types").append(...[...new Set(Object.values(TYPES))].map((type) => element("option", { value: type })));
  byId("accepts").append(...ACCEPTS.map((type) => element("option", { value: type })));
  byId("content-type").value = "application/json";
  byId("accept").value = state.facts.defaultAccept ?? "*/*";
  await learnSignatures(byId("model").value);
  const chooseTab = wire();
  showVersions();
  showSignatures();
  showServed();
  chooseTab(byId(state.facts.script ? "tab-file" : "tab-form"));
  document.body.dataset.ready = "yes";
}

start();
