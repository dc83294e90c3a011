// Live figures out of /metrics: what has happened between scrapes, not what has happened since the start.
import { bar, byId, element, milliseconds } from "./dom.js";
import { keyedFetch } from "./key.js";

const EVERY_MILLISECONDS = 2000;
const KEPT = 31; // scrapes: a minute
const AVERAGED = 6; // scrapes: ten seconds
const STAGES = ["wait", "read", "input_handler", "convert", "model_server", "output_handler", "write"];
const REQUESTS = "http_server_request_duration_seconds";
const STAGE = "tfs_proxy_stage_duration_seconds";
const STAGE_ERRORS = "tfs_proxy_stage_errors_total";
const scrapes = [];

function* samples(text) {
  for (const line of text.split("\n")) {
    const parts = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!parts) continue;
    const labels = {};
    for (const [, key, value] of (parts[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value;
    yield [parts[1], labels, Number(parts[3])];
  }
}

const add = (map, key, value) => map.set(key, (map.get(key) ?? 0) + value);

// Inferences are POSTs; what this page and a health check ask is none. Sums over all routes and models: requests, errors by status and by stage, buckets by bound, seconds and counts by stage.
export function summed(text) {
  const sums = { at: performance.now(), requests: 0, inFlight: 0, statuses: new Map(), buckets: new Map(), seconds: new Map(), counts: new Map(), failures: new Map() };
  for (const [name, labels, value] of samples(text)) {
    if (name.startsWith(REQUESTS) && labels.http_request_method !== "POST") continue;
    if (name === `${REQUESTS}_count`) {
      sums.requests += value;
      add(sums.statuses, labels.http_response_status_code, value);
    } else if (name === `${REQUESTS}_bucket`) add(sums.buckets, labels.le, value);
    else if (name === `${STAGE}_sum`) add(sums.seconds, labels.stage, value);
    else if (name === `${STAGE}_count`) add(sums.counts, labels.stage, value);
    else if (name === STAGE_ERRORS) add(sums.failures, labels.stage, value);
    else if (name === "tfs_proxy_requests_in_flight") sums.inFlight = value;
  }
  return sums;
}

// The quantile in seconds of what fell into the buckets since `before`; null if nothing did.
export function quantile(before, now, share) {
  const bounds = [...now.buckets].map(([le, count]) => [le === "+Inf" ? Infinity : Number(le), count - (before?.buckets.get(le) ?? 0)]).sort((one, other) => one[0] - other[0]);
  const total = bounds.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  let lower = 0;
  let below = 0;
  for (const [bound, count] of bounds) {
    if (count >= share * total) {
      if (bound === Infinity) return lower;
      return lower + (bound - lower) * ((share * total - below) / Math.max(count - below, 1e-9));
    }
    [lower, below] = [bound, count];
  }
  return lower;
}

function showRate() {
  const rates = scrapes.slice(1).map((scrape, index) => Math.max(0, (scrape.requests - scrapes[index].requests) / ((scrape.at - scrapes[index].at) / 1000)));
  const [now, earlier] = [scrapes.at(-1), scrapes.at(-Math.min(scrapes.length, AVERAGED))];
  const average = now === earlier ? 0 : (now.requests - earlier.requests) / ((now.at - earlier.at) / 1000);
  byId("rate").textContent = average >= 100 ? average.toFixed(0) : average.toFixed(1);
  const most = Math.max(...rates, 1);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const first = KEPT - 1 - rates.length;
  line.setAttribute("points", rates.map((rate, index) => `${first + index},${27 - 25 * (rate / most)}`).join(" "));
  const chart = byId("rate-line");
  chart.setAttribute("viewBox", `0 0 ${KEPT - 2} 28`);
  chart.setAttribute("preserveAspectRatio", "none");
  chart.replaceChildren(line);
}

function showLatency(now) {
  const quantiles = (before) => [0.5, 0.95].map((share) => quantile(before, now, share));
  const recent = quantiles(scrapes[0]);
  const isRecent = recent[0] !== null;
  const [median, high] = isRecent ? recent : quantiles(null);
  byId("latency").textContent = median === null ? "–" : milliseconds(1000 * median);
  byId("latency-note").textContent = median === null ? "median; no request yet" : `median ${isRecent ? "of the last minute" : "since the start"}; 95\u202f% under ${milliseconds(1000 * high)}`;
}

function showErrors(now) {
  const failed = [...now.statuses].filter(([status, count]) => Number(status) >= 400 && count > 0);
  const total = failed.reduce((sum, [, count]) => sum + count, 0);
  byId("errors").textContent = String(total);
  showErrorStages(now.failures);
  const kinds = failed.sort((one, other) => other[1] - one[1]).slice(0, 4).map(([status, count]) => `${count} × ${status}`);
  byId("errors-note").textContent = `of ${now.requests} ${now.requests === 1 ? "request" : "requests"} since the start${kinds.length ? `: ${kinds.join(", ")}` : ""}`;
}

function showErrorStages(failures) {
  const counted = [...failures.values()].reduce((sum, count) => sum + count, 0);
  const shown = [...STAGES, "other"].filter((stage) => failures.get(stage) > 0);
  byId("error-stages").replaceChildren(...shown.map((stage) => bar(stage.replace("_", " "), failures.get(stage) / counted, String(failures.get(stage)), `stage-${stage}`)));
}

function showStages(now) {
  const means = (before) => STAGES.map((stage) => {
    const count = (now.counts.get(stage) ?? 0) - (before?.counts.get(stage) ?? 0);
    return [stage, count > 0 ? ((now.seconds.get(stage) ?? 0) - (before?.seconds.get(stage) ?? 0)) / count : null];
  }).filter(([, mean]) => mean !== null);
  const recent = means(scrapes[0]);
  const shown = recent.length ? recent : means(null);
  if (!shown.length) return;
  const most = Math.max(...shown.map(([, mean]) => mean), 1e-9);
  byId("stages").replaceChildren(...shown.map(([stage, mean]) => bar(stage.replace("_", " "), mean / most, milliseconds(1000 * mean), `stage-${stage}`)));
}

export function stageBars(header) {
  const stages = [...header.matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, duration]) => [name, Number(duration)]);
  const total = stages.find(([name]) => name === "total")?.[1] ?? 0;
  return stages.map(([name, duration]) => bar(name.replace("_", " "), total ? duration / total : 0, milliseconds(duration), STAGES.includes(name) ? `stage-${name}` : ""));
}

async function showReady() {
  const pill = byId("ready");
  const answer = await fetch("ping");
  const reason = answer.ok ? "ready" : `not ready: ${(await answer.json()).error}`;
  if (pill.textContent !== reason) pill.textContent = reason;
  pill.className = `pill ${answer.ok ? "good" : "bad"}`;
}

export async function refresh() {
  try {
    await showReady();
    const answer = await keyedFetch("metrics", { headers: { Accept: "text/plain" } });
    if (!answer.ok) return;
    const now = summed(await answer.text());
    if (scrapes.length && now.requests < scrapes.at(-1).requests) scrapes.length = 0; // it was started anew
    scrapes.push(now);
    if (scrapes.length > KEPT) scrapes.shift();
    showRate();
    showLatency(now);
    showErrors(now);
    showStages(now);
  } catch {
    byId("ready").textContent = "does not answer";
    byId("ready").className = "pill bad";
  }
}

export function watch() {
  refresh();
  setInterval(() => document.hidden || refresh(), EVERY_MILLISECONDS);
}
