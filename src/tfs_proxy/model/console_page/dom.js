// Elements made of text: nothing that a model, a file or a server says is ever read as HTML.
export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Options as [value, text]; the chosen one stays if it is still there.
export function fillSelect(select, options) {
  const before = select.value;
  select.replaceChildren(...options.map(([value, text]) => element("option", { value }, text)));
  if (options.some(([value]) => value === before)) select.value = before;
}

export function bar(name, share, number, kind = "") {
  const fill = element("div", { class: `fill ${kind}` });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  const track = element("div", { class: "track", "aria-hidden": "true" }, fill);
  return element("div", { class: "barline" }, element("span", { class: "name" }, name), track, element("span", { class: "number" }, number));
}

export function milliseconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value.toFixed(value < 10 ? 2 : 1)} ms`;
}

// Arrow keys move between tabs, as people who use keyboards expect; `chosen` is told of each choice.
export function tabs(list, chosen) {
  const all = () => [...list.querySelectorAll("[role=tab]")].filter((tab) => !tab.hidden);
  const choose = (tab) => {
    for (const each of list.querySelectorAll("[role=tab]")) {
      each.setAttribute("aria-selected", String(each === tab));
      each.tabIndex = each === tab ? 0 : -1;
    }
    chosen(tab);
  };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) choose(tab);
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const shown = all();
    const next = shown[(shown.indexOf(document.activeElement) + step + shown.length) % shown.length];
    next.focus();
    choose(next);
    event.preventDefault();
  });
  return choose;
}
