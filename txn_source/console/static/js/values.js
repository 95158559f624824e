/**
 * Keys and values of messages as elements. They come from anybody: what can't be seen, or would turn the text around
 * it, is named, and each stands by itself in the flow of text.
 *
 * As the service tells them: null, texts, numbers, booleans, lists and objects; {hex: "..."} for bytes that are no text.
 */

import { h } from './dom.js';

const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST_PREVIEW = 300;

const isBytes = (value) =>
  value !== null && typeof value === 'object' && Object.keys(value).length === 1 && /^[0-9a-f]*$/.test(value.hex ?? '-');

/** Make what can't be seen visible: a zero byte as "␀", a mark that turns text around as "⟨U+202E⟩". */
export function visible(text) {
  return text.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
  });
}

/** A value in one line: for a row of a table. */
export function preview(value) {
  if (value === null || value === undefined) return h('i.quiet', {}, 'null');
  if (value === '') return h('i.quiet', {}, 'empty');
  if (isBytes(value)) return h('span', { title: 'bytes, in hex' }, h('span.quiet', {}, '0x'), value.hex.slice(0, LONGEST_PREVIEW));
  return h('bdi', {}, cut(visible(oneLine(value))));
}

/** A whole value, with its lines. */
export function whole(value) {
  if (value === null || value === undefined || value === '') return preview(value);
  if (isBytes(value)) return h('pre.value', {}, hexLines(value.hex));
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return h('pre.value', { dir: 'auto' }, visible(text));
}

/** Whether a value is an object of fields: then each has a line of its own. */
export const hasFields = (value) =>
  value !== null && typeof value === 'object' && !Array.isArray(value) && !isBytes(value);

function oneLine(value) {
  if (typeof value === 'string') return value.slice(0, LONGEST_PREVIEW + 1).replace(/\s*\n\s*/g, ' ↵ ');
  if (!hasFields(value)) return JSON.stringify(value);
  let text = '';
  for (const [name, field] of Object.entries(value)) {
    text += `${text && ', '}${name}: ${isBytes(field) ? `0x${field.hex}` : JSON.stringify(field)}`;
    if (text.length > LONGEST_PREVIEW) break;
  }
  return text;
}

const cut = (text) => (text.length > LONGEST_PREVIEW ? `${text.slice(0, LONGEST_PREVIEW)}…` : text);

const hexLines = (hex) =>
  (hex.match(/.{1,64}/g) ?? []).map((line) => line.match(/.{1,4}/g).join(' ')).join('\n');
