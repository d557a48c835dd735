// Elements without markup in strings: the page's policy forbids it.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") node.textContent = value;
    else if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else if (value === false || value === null || value === undefined) node.removeAttribute(name);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function drawing(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function find(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no element ${id}`);
  return node;
}

export function stored(store, name) {
  try {
    return JSON.parse(store.getItem(`pylos.${name}`));
  } catch {
    return null; // forbidden or damaged storage is the same as none
  }
}

export function store(store_, name, value) {
  try {
    store_.setItem(`pylos.${name}`, JSON.stringify(value));
  } catch {
    // a browser may forbid storage: the page then forgets when it is closed
  }
}

/** Hand a text to the visitor as a file. */
export function download(name, text) {
  const link = element("a", { download: name });
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
