// Elements, built one by one. A text becomes a text node, never markup: what is stored is shown, not obeyed.

/**
 * An element. `about` holds attributes; `on` its listeners by name; true and false set and leave out an attribute.
 * @param {string} name
 * @param {Object<string, any>} [about]
 * @param {...(Node | string | number | null | undefined | false)} children
 */
export function el(name, about = {}, ...children) {
  return dressed(document.createElement(name), about, children);
}

/** The same, for a drawing. */
export function drawn(name, about = {}, ...children) {
  return dressed(document.createElementNS("http://www.w3.org/2000/svg", name), about, children);
}

function dressed(element, { on = {}, ...about }, children) {
  for (const [name, value] of Object.entries(about)) {
    if (value !== false && value != null) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const [name, listener] of Object.entries(on)) element.addEventListener(name, listener);
  element.append(...children.filter(child => child != null && child !== false).map(child =>
    child instanceof Node ? child : String(child)));
  return element;
}

/** The one element with that id. */
export const the = id => document.getElementById(id);
