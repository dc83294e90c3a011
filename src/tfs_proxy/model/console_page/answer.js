// An answer as what it is: a label with bars, a picture, a table, JSON or text.
import { bar, byId, element, milliseconds } from "./dom.js";
import { stageBars } from "./metrics.js";
import { readNpy, shapeOf } from "./npy.js";

const MOST_ROWS = 200, MOST_COLUMNS = 60, MOST_CLASSES = 10, MOST_TEXT = 200_000, MOST_HEAD_BYTES = 1024 * 1024;

const isNumber = (value) => typeof value === "number";
const isVector = (value) => Array.isArray(value) && value.length > 1 && value.every(isNumber);
const cell = (value) => (isNumber(value) ? String(Number(value.toPrecision(7))) : typeof value === "string" ? value : JSON.stringify(value));

function pre(text) {
  const shown = text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}\n… ${text.length - MOST_TEXT} characters more` : text;
  return element("pre", {}, shown);
}

// `output` names columns that have no name of their own.
function table(rows, output) {
  const isOfObjects = rows.every((row) => row && typeof row === "object" && !Array.isArray(row));
  const names = isOfObjects ? [...new Set(rows.flatMap((row) => Object.keys(row)))].slice(0, MOST_COLUMNS) : null;
  const cells = (row) => (names ? names.map((name) => row[name]) : Array.isArray(row) ? row.slice(0, MOST_COLUMNS) : [row]);
  const width = Math.max(...rows.slice(0, MOST_ROWS).map((row) => cells(row).length));
  const heads = names ?? (width === 1 ? [output] : Array.from({ length: width }, (_, index) => `${output} ${index}`));
  const head = element("tr", {}, ...["#", ...heads].map((name) => element("th", { scope: "col" }, name)));
  const body = rows.slice(0, MOST_ROWS).map((row, index) => element("tr", {}, element("th", { scope: "row" }, String(index + 1)), ...cells(row).map((value) => element("td", {}, value === undefined ? "" : cell(value)))));
  const made = element("div", {}, element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body))));
  if (rows.length > MOST_ROWS) made.append(element("p", { class: "faint" }, `${rows.length - MOST_ROWS} rows more`));
  return made;
}

function vectorBars(vector) {
  const ranked = vector.map((value, index) => [index, value]).sort((one, other) => other[1] - one[1]).slice(0, MOST_CLASSES);
  const most = Math.max(...vector.map(Math.abs), 1e-30);
  const areShares = vector.every((value) => value >= 0 && value <= 1);
  return element("div", { class: "bars" }, ...ranked.map(([index, value]) => bar(String(index), (areShares ? value : Math.abs(value) / most), areShares ? `${(100 * value).toFixed(2)} %` : value.toPrecision(5))));
}

// Vectors of scores, one for each record, wherever in the answer they are.
function scoresIn(value) {
  const records = value?.predictions ?? value?.outputs ?? value;
  if (isVector(records)) return [records];
  if (!Array.isArray(records) || !records.length) return null;
  if (records.every(isVector)) return records;
  return null;
}

function labelIn(value) {
  if (!value || typeof value !== "object" || Array.isArray(value)) return null;
  const label = ["label", "class", "class_name", "prediction"].map((name) => value[name]).find((each) => ["string", "number"].includes(typeof each));
  if (label === undefined) return null;
  const shares = Object.entries(value).filter(([, each]) => isNumber(each) && each >= 0 && each <= 1 && each !== label);
  const scores = value.probabilities ?? value.scores;
  const parts = shares.map(([name, share]) => bar(name, share, `${(100 * share).toFixed(2)} %`));
  return element("div", {}, element("p", { class: "label" }, String(label)), element("div", { class: "bars" }, ...parts), isVector(scores) ? vectorBars(scores) : null);
}

// Records of labels beside their scores, the best first, as `tfs-proxy pack --labels --top` makes them; else null.
function rankedIn(value) {
  const records = value?.predictions ?? value;
  const pairs = Array.isArray(records) && records.length ? records.map((record) => {
    const lists = record && typeof record === "object" ? Object.values(record).filter(Array.isArray) : [];
    const [labels, scores] = [lists.find((list) => list.length && list.every((each) => typeof each === "string")), lists.find((list) => list.length && list.every(isNumber))];
    return labels && labels.length === scores?.length ? [labels, scores] : null;
  }) : [null];
  if (pairs.includes(null)) return null;
  return element("div", { class: "bars" }, ...pairs.slice(0, 10).flatMap(([labels, scores], index) => {
    const most = Math.max(...scores.map(Math.abs), 1e-30);
    const areShares = scores.every((score) => score >= 0 && score <= 1);
    const lines = labels.map((label, rank) => bar(label, areShares ? scores[rank] : Math.abs(scores[rank]) / most, areShares ? `${(100 * scores[rank]).toFixed(2)} %` : scores[rank].toPrecision(5)));
    return [element("p", { class: "label" }, pairs.length > 1 ? `Record ${index + 1}: ${labels[0]}` : labels[0]), ...lines];
  }));
}

function labelView(value) {
  const label = labelIn(value) ?? rankedIn(value);
  if (label) return label;
  const scores = scoresIn(value);
  if (!scores) return null;
  return element("div", { class: "bars" }, ...scores.slice(0, 10).flatMap((vector, index) => {
    const best = vector.indexOf(Math.max(...vector));
    return [element("h3", {}, scores.length > 1 ? `Record ${index + 1}: class ${best}` : `Class ${best}`), vectorBars(vector)];
  }));
}

// Numbers of shape height x width, with 1, 3 or 4 channels or without, drawn from their least to their greatest.
function pictureView(value) {
  let pixels = value?.predictions ?? value?.outputs ?? value;
  if (Array.isArray(pixels) && shapeOf(pixels).length === 4) pixels = pixels[0];
  if (Array.isArray(pixels) && pixels.length === 1 && shapeOf(pixels).length === 3 && shapeOf(pixels)[2] > 4) pixels = pixels[0];
  const [height, width, channels = 1, ...more] = shapeOf(pixels);
  const flat = Array.isArray(pixels) ? pixels.flat(2) : [];
  if (more.length || !(height >= 8 && width >= 8) || ![1, 3, 4].includes(channels) || flat.length !== height * width * channels || !flat.every(isNumber)) return null;
  const [least, most] = flat.reduce(([low, high], each) => [Math.min(low, each), Math.max(high, each)], [Infinity, -Infinity]);
  const scale = 255 / (most - least || 1);
  const canvas = element("canvas", { width, height, class: "picture", role: "img", "aria-label": `Picture of ${width} by ${height}` });
  const image = new ImageData(width, height);
  for (let pixel = 0; pixel < height * width; pixel += 1) {
    for (let channel = 0; channel < 4; channel += 1) {
      const source = channels === 1 ? 0 : channel;
      image.data[4 * pixel + channel] = channel === 3 && channels < 4 ? 255 : (flat[pixel * channels + source] - least) * scale;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function tableView(value, output) {
  const rows = value?.predictions ?? value?.results ?? value?.outputs ?? value;
  if (Array.isArray(rows) && rows.length) return table(rows, output);
  if (rows && typeof rows === "object" && Object.keys(rows).length) return table([rows], output);
  return null;
}

const csvRows = (text) => text.trim().split(/\r?\n/).map((line) => line.split(",").map((part) => (part.trim() === "" || Number.isNaN(Number(part)) ? part : Number(part))));

// The answer's values, and as text; values are undefined if they are not known.
function read(kind, buffer) {
  if (kind === "application/x-npy") {
    const array = readNpy(buffer);
    return { values: array?.values ?? undefined, decoded: array && `${array.dtype} [${array.shape.join(", ")}]`, text: array?.values ? JSON.stringify(array.values) : null };
  }
  if (!/json|text|xml|csv/.test(kind)) return { text: null };
  const text = new TextDecoder().decode(buffer);
  try {
    if (kind.includes("jsonlines")) return { text, values: text.trim().split("\n").map((line) => JSON.parse(line)) };
    if (kind.includes("json")) return { text: JSON.stringify(JSON.parse(text), null, 1), values: JSON.parse(text) };
  } catch {
    return { text };
  }
  return kind === "text/csv" ? { text, values: csvRows(text) } : { text };
}

function decodedText(read, signature) {
  if (read.decoded) return read.decoded;
  const values = read.values?.predictions ?? read.values?.outputs ?? read.values;
  if (!Array.isArray(values)) return null;
  const outputs = Object.values(signature?.outputs ?? {});
  const dtype = outputs.length === 1 ? `${outputs[0].dtype.replace("DT_", "").toLowerCase()} ` : "";
  return `${dtype}[${shapeOf(values).join(", ")}]`;
}

function chooseView(views) {
  const group = byId("views");
  const show = (chosen) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.textContent === chosen));
    byId("answer").replaceChildren(views.find(([name]) => name === chosen)[1]);
  };
  group.replaceChildren(...views.map(([name]) => {
    const button = element("button", { type: "button", "aria-pressed": "false" }, name);
    button.addEventListener("click", () => show(name));
    return button;
  }));
  group.hidden = views.length < 2;
  if (views.length) show(views[0][0]);
  else byId("answer").replaceChildren();
}

function viewsOf(kind, buffer, answer, output, isError) {
  if (kind.startsWith("image/")) {
    const picture = element("img", { class: "picture", alt: "The answer", src: URL.createObjectURL(new Blob([buffer], { type: kind })) });
    return [["Picture", picture]];
  }
  const views = [];
  if (answer.values !== undefined && !isError) {
    for (const [name, view] of [["Label", labelView], ["Picture", pictureView], ["Table", tableView]]) {
      const made = view(answer.values, output);
      if (made) views.push([name, made]);
    }
  }
  if (answer.text) views.push([kind.includes("json") ? "JSON" : "Text", pre(answer.text)]);
  if (!views.length && buffer.byteLength) {
    views.push(["File", element("a", { href: URL.createObjectURL(new Blob([buffer])), download: "answer" }, `Save ${buffer.byteLength} bytes of ${kind || "no type"}`)]);
  }
  return views;
}

// What a file is that was sent; null for what stands in the form or the editor.
export async function known(request) {
  if (request.file === null) return null;
  const array = readNpy(await request.body.slice(0, MOST_HEAD_BYTES).arrayBuffer());
  if (array) return `${array.dtype} [${array.shape.join(", ")}]`;
  const { hidden, naturalWidth, naturalHeight } = byId("preview");
  return hidden ? `${request.body.size} bytes` : `a picture of ${naturalWidth} by ${naturalHeight} pixels`;
}

const dtypeText = (dtype) => (dtype === "object" ? "text or bytes" : dtype); // numpy has text as objects
const decodedInputs = (header) => Object.entries(JSON.parse(header)).map(([name, [dtype, shape]]) => `${name}: ${dtypeText(dtype)} [${shape.join(", ")}]`).join("; ");

// The name of the only output, which columns have; a script may answer something else.
function outputName({ signature, hasScript }, values) {
  const names = Object.keys(signature?.outputs ?? {});
  const isProtocol = values?.predictions !== undefined || values?.outputs !== undefined;
  return names.length === 1 && (isProtocol || !hasScript) ? names[0] : "value";
}

// Takes an old answer away, so that none stands beside a request that was not sent.
export function clearAnswer(sentence) {
  byId("status").textContent = sentence;
  byId("status").className = "faint";
  byId("views").hidden = true;
  for (const id of ["answer", "facts", "timing"]) byId(id).replaceChildren();
}

// `sent` says what the page knows of the request's body.
export function showAnswer(response, buffer, took, sent, request) {
  const kind = (response.headers.get("Content-Type") ?? "").split(";")[0].trim().toLowerCase();
  const answer = read(kind, buffer);
  const status = byId("status");
  status.textContent = `${response.status} ${response.statusText} after ${milliseconds(took)}`;
  status.className = `pill ${response.ok ? "good" : "bad"}`;
  chooseView(viewsOf(kind, buffer, answer, outputName(request, answer.values), !response.ok));
  const header = response.headers.get("X-Tfs-Proxy-Decoded");
  const facts = [
    ["You sent", sent],
    ["The model got", header && decodedInputs(header)],
    ["Answer", [kind, `${buffer.byteLength} bytes`, response.ok ? decodedText(answer, request.signature) : null].filter(Boolean).join(", ")],
    ["Request id", response.headers.get("X-Request-Id")],
  ];
  byId("facts").replaceChildren(...facts.filter(([, fact]) => fact).flatMap(([name, fact]) => [element("dt", {}, name), element("dd", {}, fact)]));
  const timing = response.headers.get("Server-Timing");
  byId("timing").replaceChildren(...(timing ? [element("h3", {}, "Stages"), ...stageBars(timing)] : []));
}
