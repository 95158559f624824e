/** Calls to the service: JSON in and out, the token, errors as one class, and whether the service answers. */

const TOKEN = 'txnlog.token';
const PATIENCE_MS = 15_000;

/** An answer that is no answer. `status` 0: there was none. */
export class ApiError extends Error {
  constructor(status, code, fact, remedy) {
    super(fact);
    Object.assign(this, { status, code, fact, remedy });
  }
}

/** Whether an error is that the service is away, or has too much to do. */
export const isAway = (error) => error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500);

/**
 * Tells `signedout` (with the error as `detail`) when the service asks for a token, and `edition` when it turns out that
 * it serves another page than this one (`detail` true), or this one again.
 */
export const events = new EventTarget();

/** The token of this tab, or null. A browser that keeps nothing has it until the page is left. */
export const token = {
  get() {
    try {
      return sessionStorage.getItem(TOKEN);
    } catch {
      return unkept;
    }
  },
  set(text) {
    try {
      sessionStorage.setItem(TOKEN, text);
    } catch {
      unkept = text;
    }
  },
  forget() {
    try {
      sessionStorage.removeItem(TOKEN);
    } catch {
      unkept = null;
    }
  },
};
let unkept = null;

/** Return what GET /api/<path> answers. Null and undefined params are left out. Raises ApiError. */
export function get(path, params = {}, { signal } = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const query = new URLSearchParams(given).toString();
  return call(`api/${path}${query ? `?${query}` : ''}`, { signal });
}

/** Return what POST /api/<path> answers to a body. Raises ApiError. */
export function post(path, body, { signal } = {}) {
  const headers = { 'Content-Type': 'application/json', 'X-Txnlog-Console': '1' };
  return call(`api/${path}`, { method: 'POST', body: JSON.stringify(body), headers, signal });
}

/** Which page's files these are; none if they were asked for by their plain names. */
const EDITION = /\/page-([0-9a-f]+)\//.exec(import.meta.url)?.[1];
let outdated = false;

function compareEdition(response) {
  const served = response.headers.get('X-Txnlog-Page');
  const differs = Boolean(EDITION && served && served !== EDITION);
  if (differs === outdated) return;
  outdated = differs;
  events.dispatchEvent(new CustomEvent('edition', { detail: outdated }));
}

async function call(url, { method = 'GET', headers = {}, body, signal }) {
  const asked = token.get();
  if (asked) headers = { ...headers, Authorization: `Bearer ${asked}` };
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const signals = AbortSignal.any(signal ? [signal, patience] : [patience]);
  const remedy = method === 'GET' ? 'The page tries again by itself.' : 'It may have been done or not: try again.';
  let response, answer;
  try {
    response = await fetch(url, { method, headers, body, signal: signals, credentials: 'omit', cache: 'no-store' });
    compareEdition(response);
    answer = await response.json().catch((error) => {
      if (error instanceof SyntaxError) return null;
      throw error;
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const fact = patience.aborted ? `The service gave no answer in ${PATIENCE_MS / 1000} s.` : "The service can't be reached.";
    throw new ApiError(0, 'NO_ANSWER', fact, remedy);
  }
  if (response.ok) {
    if (answer !== null && typeof answer === 'object' && !Array.isArray(answer)) return answer;
    throw new ApiError(0, 'NO_ANSWER', 'The answer isn’t the console’s: it was cut off, or a proxy gave it.', remedy);
  }
  const told = answer?.error ?? {};
  const fact = told.fact ?? `The service answered with status ${response.status}.`;
  const error = new ApiError(response.status, told.code ?? `HTTP_${response.status}`, fact, told.remedy ?? '');
  // A token that was replaced meanwhile says nothing about the one that is there now.
  if (response.status === 401 && asked === token.get()) {
    token.forget();
    events.dispatchEvent(new CustomEvent('signedout', { detail: { error, hadToken: Boolean(asked) } }));
  }
  throw error;
}
