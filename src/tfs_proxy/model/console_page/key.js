// The key of a server that asks for one: asked for once, kept in this tab, and sent with each request.
import { byId } from "./dom.js";

const KEPT = "tfs-proxy-key";
let asking = null;

export const hasKey = () => Boolean(sessionStorage.getItem(KEPT));

// A request with the key, if there is one.
export function keyedFetch(path, request = {}) {
  if (!hasKey()) return fetch(path, request);
  return fetch(path, { ...request, headers: { ...request.headers, Authorization: `Bearer ${sessionStorage.getItem(KEPT)}` } });
}

// True once a person has given a key; all requests that were refused wait for the same one.
function askForKey() {
  byId("key-note").textContent = hasKey() ? "The server does not take this key." : "It is kept in this tab alone, until you close it.";
  asking ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      asking = null;
      if (dialog.returnValue) sessionStorage.setItem(KEPT, byId("key").value.trim());
      resolve(Boolean(dialog.returnValue));
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// The same, and a refused one is sent again with the key that a person gives.
export async function ask(path, request) {
  let answer = await keyedFetch(path, request);
  while (answer.status === 401 && await askForKey()) answer = await keyedFetch(path, request);
  return answer;
}

byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  byId("key-dialog").close("given");
});
