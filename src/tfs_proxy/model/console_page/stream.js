// Bidirectional streams: a WebSocket, its messages, and the times since it was opened at which they went and came.
import { byId, element, milliseconds } from "./dom.js";
import { hasKey } from "./key.js";

const MOST_LINES = 500;
const MOST_SHOWN = 10_000;
const HEX_BYTES = 32;
const NORMAL = 1000;
const NEVER_OPENED = "It was not opened: the server refused it, or is not there. Its log has the reason.";
const WITHOUT_KEY = "A browser opens streams without the key that it asks for: open them by a program.";
const MEANINGS = {
  1000: "done", 1001: "going away", 1002: "not RFC 6455", 1003: "this kind of message is not taken", 1005: "without a code", 1006: "without a close: the connection broke", 1007: "text that is not UTF-8",
  1008: "refused", 1009: "a message that is too large", 1011: "an error of the server", 1012: "the server starts again", 1013: "too busy: try again",
};
const NOTES = {
  script: "Messages go to stream(messages, context) of inference.py.",
  model: "Each message is a request of its own, a JSON document or CSV rows, answered as /invocations would.",
  off: "Streams are off: start the server with TFS_PROXY_STREAM=true, or give inference.py an async def stream(messages, context).",
  many: "Streams are off: they are served with one archive, not with many models that come and go.",
};
const state = { socket: null, began: 0, mayStream: false };

export const mayStream = () => state.mayStream;

const streamUrl = () => {
  const url = new URL(byId("stream-path").value.replace(/^\/+/, ""), document.baseURI);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
};

export function streamSnippet() {
  const message = JSON.stringify(byId("stream-text").value.slice(0, MOST_SHOWN)); // a JSON string is one of Python's, too
  return ["from websockets.sync.client import connect", "", `with connect(${JSON.stringify(streamUrl())}) as stream:`, `    stream.send(${message})`, "    print(stream.recv())"].join("\n");
}

function add(kind, text, time = performance.now() - state.began) {
  const log = byId("messages");
  log.append(element("p", { class: `message ${kind}` }, element("span", { class: "faint" }, `${milliseconds(time)} ${kind}`), element("span", { class: "wraps" }, text)));
  while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
  log.scrollTop = log.scrollHeight;
}

const cut = (text) => (text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)} … (${text.length} characters)` : text);

function shown(data) {
  if (typeof data === "string") return cut(data);
  const size = `${data.byteLength} bytes`;
  try {
    return `${size}: ${cut(new TextDecoder("utf-8", { fatal: true }).decode(data))}`;
  } catch { // it is no text
    const start = [...new Uint8Array(data.slice(0, HEX_BYTES))].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    return `${size}: ${start}${data.byteLength > HEX_BYTES ? " …" : ""}`;
  }
}

function showState() {
  const text = ["connecting", "open", "closing", "closed"][state.socket?.readyState ?? WebSocket.CLOSED];
  byId("stream-state").textContent = text;
  byId("stream-state").className = `pill ${text === "open" ? "good" : ""}`;
  byId("stream-connect").textContent = text === "closed" ? "Connect" : "Close";
}

function ended({ code, reason }) {
  const why = reason || MEANINGS[code];
  add(code === NORMAL ? "closed" : "failed", `${code}${why ? ` (${why})` : ""}`);
}

// The open stream, or a new one; throws if the server does not take it.
function opened() {
  if (state.socket) return state.socket.readyState === WebSocket.OPEN ? Promise.resolve(state.socket) : Promise.reject(new Error("The stream is not open: wait a moment."));
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(streamUrl());
    let wasOpen = false;
    socket.binaryType = "arraybuffer";
    Object.assign(state, { socket, began: performance.now() });
    byId("messages").replaceChildren();
    socket.addEventListener("open", () => { wasOpen = true; add("opened", socket.url); showState(); resolve(socket); });
    socket.addEventListener("message", ({ data }) => add("received", shown(data)));
    socket.addEventListener("close", (event) => {
      if (wasOpen) ended(event);
      state.socket = null;
      showState();
      reject(new Error(hasKey() ? `${NEVER_OPENED} ${WITHOUT_KEY}` : NEVER_OPENED)); // of no effect if it was open
    });
    showState();
  });
}

// Opens the stream if need be, and sends text or a file's bytes as one message; throws if that can't be done.
export async function sendMessage(data) {
  const socket = await opened();
  socket.send(data);
  add("sent", shown(data));
}

export const messageText = () => byId("stream-text").value;

// `attempt` runs an act and shows its error; `manyModels` and `streams` are facts of the page.
export function wireStream({ manyModels, streams }, attempt) {
  const kind = manyModels ? "many" : (streams ?? "off");
  state.mayStream = kind === "script" || kind === "model";
  byId("stream-note").textContent = NOTES[kind];
  byId("stream-controls").hidden = !state.mayStream;
  if (kind === "model") byId("stream-text").value = '{"instances": [1.0]}';
  byId("stream-connect").addEventListener("click", () => attempt(async () => {
    if (!state.socket) await opened();
    else state.socket.close(NORMAL);
    showState();
  }));
  byId("stream-file").addEventListener("change", () => attempt(async () => {
    const [file] = byId("stream-file").files;
    byId("stream-file").value = "";
    if (file) await sendMessage(await file.arrayBuffer());
  }));
  showState();
}
