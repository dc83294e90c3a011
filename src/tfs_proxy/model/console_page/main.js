// Entry point of the page: finds the models, makes requests from its fields, shows answers.
import { clearAnswer, known, showAnswer } from "./answer.js";
import { blame, blameEach, clearBlame, fieldOf, showMore, withoutGraph } from "./blame.js";
import { declaredForm } from "./declared.js";
import { byId, element, fillSelect, tabs } from "./dom.js";
import { signatureForm } from "./form.js";
import { ask, hasKey } from "./key.js";
import { refresh, watch } from "./metrics.js";
import { choicesOf, getFacts, learnSignatures, showModels, wireLoad } from "./models.js";
import { defaultOf, inOrder, showServed } from "./served.js";
import { CLIENTS } from "./snippets.js";

const TYPES = {
  png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", csv: "text/csv", npy: "application/x-npy", npz: "application/x-npz", json: "application/json",
  jsonl: "application/jsonlines", jsonlines: "application/jsonlines", ndjson: "application/jsonlines", tfrecord: "application/x-tfrecord", txt: "text/plain",
};
const ACCEPTS = ["*/*", "application/json", "application/jsonlines", "text/csv", "application/x-npy", "application/x-npz"];
const IS_TEXT = /json|csv|plain/;
const MOST_EDITED_BYTES = 1024 * 1024;
const METHODS = { "tensorflow/serving/classify": "classify", "tensorflow/serving/regress": "regress" };
const LABEL = "label:"; // before the label, in the value of its option
const [AGAIN_MILLISECONDS, LOOK_MILLISECONDS] = [2000, 10_000];
const state = { facts: null, places: {}, file: null, way: "form", client: 0, form: null };

const versionsOf = (model) => state.facts.models[model] ?? {};
const newest = (model) => Object.keys(versionsOf(model)).sort((one, other) => Number(one) - Number(other)).at(-1);
const label = () => (byId("version").value.startsWith(LABEL) ? byId("version").value.slice(LABEL.length) : null);
const number = () => (label() === null ? byId("version").value : "");
const place = () => state.places[byId("model").value] ?? null; // only if many models come and go
const version = () => (label() === null ? versionsOf(byId("model").value)[number() || newest(byId("model").value)] : labelsOf(byId("model").value)[label()]);
const signatures = () => version()?.signatures ?? {};
const signature = () => signatures()[byId("signature").value] ?? null;

// The versions of a model that have a label, by label.
function labelsOf(model) {
  const { labels, manyModels } = state.facts;
  if (!manyModels) return labels[model] ?? {};
  return Object.fromEntries(Object.entries(labels).filter(([, labelled]) => labelled in versionsOf(model)).map(([name, labelled]) => [name, versionsOf(model)[labelled]]));
}

// Only if many models come and go: otherwise all signatures are known from the start.
async function learn() {
  const model = byId("model").value;
  if (!state.facts.manyModels || !state.facts.restApi || !place()?.served) return;
  await learnSignatures(versionsOf(model), label() === null ? number() || newest(model) : String(state.facts.labels[label()]), place());
}

function showVersions() {
  const model = byId("model").value;
  const numbers = Object.keys(versionsOf(model)).filter(Boolean).sort((one, other) => Number(other) - Number(one));
  const labels = Object.keys(labelsOf(model)).map((name) => [LABEL + name, `${name} (label)`]);
  fillSelect(byId("version"), [["", numbers.length ? `newest (${numbers[0]})` : "newest"], ...labels, ...numbers.map((each) => [each, each])]);
  byId("version").disabled = state.facts.script === "the model";
}

function showSignatures() {
  const names = inOrder(signatures()).map(([name]) => name).filter((name) => name !== "__saved_model_init_op");
  fillSelect(byId("signature"), names.length ? names.map((name) => [name, name]) : [["", "none"]]);
  byId("signature").disabled = !names.length;
  showInput();
}

// What the script declares of bodies of the chosen type; null if nothing.
const declared = () => state.facts.declared?.[byId("content-type").value] ?? null;

// A form of what the script declares, else of the signature; null if there is neither.
function formOf() {
  if (declared()) return declaredForm(byId("content-type").value, declared());
  return signature() ? signatureForm(signature(), version()?.ownNames) : null;
}

function showInput() {
  state.form = formOf();
  const reason = place()?.isLoaded === false ? "This model is not loaded: load it, or send a request, which loads it." : "There is no signature to make a form from: use a file or the editor.";
  byId("panel-form").replaceChildren(...(state.form?.nodes ?? [element("p", { class: "faint" }, reason)]));
  byId("body").value = state.form?.text ?? "";
  checkBody();
  update();
}

function showAll() {
  const { script, models, defaultModel, manyModels } = state.facts;
  const chosen = byId("model").value; // of many models only one is shown
  showServed(script, manyModels ? { [chosen]: versionsOf(chosen) } : models, defaultModel, (model) => Object.keys(labelsOf(model)));
}

async function modelChanged() {
  showVersions();
  await versionChanged();
}

async function versionChanged() {
  await learn();
  showSignatures();
  showAll();
}

// What is sent, and what the snippets show; throws with `field` if the form can't be read.
function currentRequest() {
  const isOneOfMany = state.facts.manyModels;
  const model = isOneOfMany ? (place()?.archive ?? "") : byId("model").value;
  const attributes = [];
  if (!isOneOfMany && Object.keys(state.facts.models).length > 1) attributes.push(`tfs-model-name=${model}`);
  if (place()?.inner) attributes.push(`tfs-model-name=${place().inner}`);
  if (label() !== null) attributes.push(`tfs-model-label=${label()}`);
  else if (number()) attributes.push(`tfs-model-version=${number()}`);
  const name = byId("signature").value;
  if (name && name !== defaultOf(signatures())) attributes.push(`tfs-signature-name=${name}`);
  const method = METHODS[signature()?.method];
  if (method) attributes.push(`tfs-method=${method}`);
  const headers = { "Content-Type": byId("content-type").value, Accept: byId("accept").value };
  if (attributes.length) headers["X-Amzn-SageMaker-Custom-Attributes"] = attributes.join(",");
  for (const each of Object.keys(headers)) if (!headers[each]) delete headers[each];
  const isFile = state.way === "file";
  const text = isFile ? "" : state.way === "form" && state.form ? state.form.body() : byId("body").value;
  const path = isOneOfMany ? `models/${encodeURIComponent(model)}/invoke` : "invocations";
  return {
    url: new URL(path, document.baseURI).href, headers, text, file: isFile ? (state.file?.name ?? "FILE") : null, body: isFile ? state.file : text, model: place()?.inner ? place().served : model, archive: model, isOneOfMany,
    version: label() ?? number(), signature: signature(), signatureName: name, hasScript: Boolean(state.facts.script),
  };
}

// With a key's place instead of the key.
function shownRequest() {
  const request = currentRequest();
  return hasKey() ? { ...request, headers: { ...request.headers, Authorization: "Bearer KEY" } } : request;
}

function update() {
  let text = "";
  try {
    text = CLIENTS[state.client][1](shownRequest());
  } catch { /* a field of the form can't be read: once it is sent, the reason stands there */ }
  byId("snippet").textContent = text;
  byId("code").hidden = !text;
  byId("code-missing").hidden = Boolean(text);
}

// What keeps a request from being sent, at its field.
function refuse(field, sentence) {
  clearAnswer("Nothing was sent: the form has a mistake.");
  blame(field, sentence);
}

async function send() {
  clearBlame();
  let request;
  try {
    request = currentRequest();
  } catch (error) {
    refuse(error.field, error.message);
    return;
  }
  if (request.isOneOfMany && !request.archive) {
    refuse(byId("model"), "No model is loaded: load one first.");
    return;
  }
  if (state.way === "file" && !state.file) {
    refuse(byId("file"), "Choose a file first.");
    return;
  }
  byId("send").disabled = true;
  byId("send-note").textContent = "waiting for the answer …";
  const began = performance.now();
  try {
    const response = await ask(request.url, { method: "POST", headers: { ...request.headers, "X-Tfs-Proxy-Timing": "1" }, body: request.body });
    const buffer = await response.arrayBuffer();
    showAnswer(response, buffer, performance.now() - began, await known(request), request);
    byId("send").disabled = false;
    if (!response.ok) explain(response.status, buffer);
  } catch (error) {
    clearAnswer("No answer.");
    blame(null, `No answer: ${error.message}`);
  }
  byId("send").disabled = false;
  byId("send-note").textContent = "";
  refresh();
  if (request.isOneOfMany) await look(); // it may have loaded its model
}

function explain(status, buffer) {
  const text = new TextDecoder().decode(buffer);
  let sentence = text;
  let details = [];
  try {
    ({ error: sentence = text, details = [] } = JSON.parse(text));
  } catch { /* it is no JSON: shown as it is */ }
  if (state.way === "form" && state.form && blameEach(state.form.fields, details)) return;
  blame(fieldOf(status, String(sentence), state.way), withoutGraph(String(sentence)) || `The answer is a ${status} without a word.`);
}

const typeOf = (file) => TYPES[file.name.toLowerCase().split(".").at(-1)] ?? (file.type || "application/octet-stream");

async function take(file) {
  clearBlame();
  state.file = file;
  const type = typeOf(file);
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
  if (IS_TEXT.test(type) && file.size <= MOST_EDITED_BYTES) byId("body").value = await file.text();
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
  const type = byId("content-type");
  if (state.way === "file") type.value = state.file ? typeOf(state.file) : state.facts.takesPictures ? "application/x-image" : type.value;
  else if (!declared() && (state.way === "form" || !IS_TEXT.test(type.value))) {
    type.value = Object.keys(state.facts.declared ?? {})[0] ?? "application/json";
    if (declared()) showInput();
  }
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
  byId("model").addEventListener("change", modelChanged);
  byId("version").addEventListener("change", versionChanged);
  byId("signature").addEventListener("change", showInput);
  byId("content-type").addEventListener("change", () => declared() && state.way !== "file" && showInput());
  byId("request").addEventListener("input", () => { checkBody(); update(); });
  byId("request").addEventListener("submit", (event) => { event.preventDefault(); send(); });
  byId("copy").addEventListener("click", copy);
  byId("more").addEventListener("click", () => showMore(byId("more").getAttribute("aria-expanded") === "false"));
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

// Many models: what there is now. What a person has filled in stays, unless the chosen model is another one.
async function look(chosen) {
  const shown = () => JSON.stringify([byId("model").value, Object.keys(versionsOf(byId("model").value)), place()?.isLoaded]);
  const before = shown();
  const [model, body] = [byId("model").value, byId("body").value];
  try {
    takeFacts(await getFacts());
  } catch {
    return; // the pill above says that the server does not answer
  }
  if (chosen && chosen in state.facts.models) byId("model").value = chosen;
  if (shown() === before) return;
  await modelChanged();
  if (byId("model").value === model && body) byId("body").value = body;
  checkBody();
  update();
}

function takeFacts(facts) {
  const known = state.facts?.models ?? {};
  state.facts = facts;
  if (facts.manyModels) {
    ({ models: facts.models, places: state.places } = choicesOf(facts.archives, known));
    showModels(facts, look);
  }
  const names = Object.keys(facts.models);
  const all = names.length ? names : [facts.defaultModel].filter(Boolean);
  const text = (name) => (state.places[name]?.isLoaded === false ? `${name} (not loaded)` : name);
  fillSelect(byId("model"), all.length ? all.map((name) => [name, text(name)]) : [["", "none loaded"]]);
}

function watchModels() {
  byId("models-card").hidden = false;
  wireLoad(look);
  setInterval(() => document.hidden || look(), LOOK_MILLISECONDS);
}

// What has failed, say while the server starts, is tried again; the pill above says why.
async function firstFacts() {
  try {
    return await getFacts();
  } catch (error) {
    if (error.status === 401) throw error; // nobody has given a key
    await new Promise((resolve) => { setTimeout(resolve, AGAIN_MILLISECONDS); });
    return firstFacts();
  }
}

async function start() {
  watch();
  takeFacts(await firstFacts());
  byId("server").textContent = state.facts.server;
  byId("title").textContent = state.facts.defaultModel || "tfs_proxy";
  document.title = `${state.facts.defaultModel || "tfs_proxy"}: try the model`;
  if (state.facts.defaultModel) byId("model").value = state.facts.defaultModel;
  byId("content-types").append(...[...new Set([...Object.keys(state.facts.declared ?? {}), ...Object.values(TYPES)])].map((type) => element("option", { value: type })));
  byId("accepts").append(...ACCEPTS.map((type) => element("option", { value: type })));
  byId("content-type").value = Object.keys(state.facts.declared ?? {})[0] ?? "application/json";
  byId("accept").value = state.facts.defaultAccept ?? "*/*";
  const chooseTab = wire();
  await modelChanged();
  if (state.facts.manyModels) watchModels();
  chooseTab(byId((state.facts.script && !declared()) || state.facts.takesPictures ? "tab-file" : "tab-form"));
  document.body.dataset.ready = "yes";
}

start();
