// The server's API: the token, requests, and the stream of events. Nothing here knows the page.

const TOKEN = "diarist-token";

/** Takes the token out of the address, where it would stay in the history, and keeps it for this tab. Whether there
 * was one. */
export function takeToken() {
  const said = new URLSearchParams(location.hash.slice(1));
  const token = said.get("token");
  if (token === null) return false;
  said.delete("token");
  history.replaceState(null, "", location.pathname + (said.size ? `#${said}` : ""));
  keepToken(token);
  return true;
}

export const keepToken = token => sessionStorage.setItem(TOKEN, token.trim());
export const dropToken = () => sessionStorage.removeItem(TOKEN);
export const hasToken = () => Boolean(sessionStorage.getItem(TOKEN));

/** An answer that is an error: what happened and what to do, as the server says it. */
export class Refusal extends Error {
  constructor(status, { code = "", message = "", hint = "" }) {
    super([message, hint].filter(Boolean).join(" "));
    this.status = status;
    this.code = code;
  }
}

/** A name of any text as one segment of a path. */
export const segment = name => "~" + btoa(String.fromCharCode(...new TextEncoder().encode(name)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

/** The path of an owner, and what is under it: of("c-2291", "notes", id). */
export const of = (owner, ...rest) => ["/v1/owners", segment(owner), ...rest].join("/");

/**
 * Asks, and gives the answer's JSON. Rejects with a `Refusal`; with status 0 if nobody answers.
 * @param {string} method @param {string} path
 * @param {{body?: unknown, query?: Object<string, string | number | boolean | string[] | null | undefined>}} [more]
 */
export async function ask(method, path, { body, query } = {}) {
  return (await send(method, path, { body, query })).json();
}

/** The same, as text: an export is JSON lines. */
export async function askText(path) {
  return (await send("GET", path)).text();
}

async function send(method, path, { body, query } = {}) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "" && each !== false) said.append(name, String(each));
    }
  }
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(said.size ? `${path}?${said}` : path, {
      method, headers, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store",
    });
  } catch (error) {
    throw new Refusal(0, { code: "unreachable", message: String(error.message) });
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Refusal(answer.status, told.error ?? {});
  }
  return answer;
}

/** What happens to a diary from now on, until the server stops or `signal` says so. EventSource could not send the
 * token. @returns {AsyncGenerator<{event: string}>} */
export async function* events(owner, signal) {
  const answer = await fetch(of(owner, "events"), {
    headers: { Authorization: `Bearer ${sessionStorage.getItem(TOKEN) ?? ""}` }, signal, cache: "no-store",
  });
  if (!answer.ok) throw new Refusal(answer.status, (await answer.json().catch(() => ({}))).error ?? {});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    waiting += value;
    const blocks = waiting.split("\n\n");
    waiting = blocks.pop() ?? "";
    for (const block of blocks) {
      const lines = block.split("\n");
      const name = lines.find(line => line.startsWith("event: "))?.slice(7);
      const data = lines.find(line => line.startsWith("data: "))?.slice(6);
      if (name && data) yield { ...JSON.parse(data), event: name };
    }
  }
}
