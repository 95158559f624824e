/**
 * A place in a topic, as fields of a form: the earliest, the latest, a time, or a position.
 *
 * A time is typed in the reader's zone or in UTC, which has no hour twice; what it means is told beside it.
 */

import { h, patch } from './dom.js';
import { time } from './format.js';

const KINDS = [['earliest', 'Earliest'], ['latest', 'Latest'], ['time', 'Time'], ['position', 'Position']];

/** Whether a text is a position ("12:40") or a message's id ("12:40:3"). */
export const isPosition = (text) => /^\d{1,19}:\d{1,19}(:\d{1,9})?$/.test(text);

/** Ms since the epoch as a field for times has it: "2026-11-23T03:40:12". */
export function fieldTime(ms, utc) {
  const offset = utc ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  const at = new Date(ms - offset);
  return Number.isNaN(at.getTime()) ? '' : at.toISOString().slice(0, 19);
}

/** What such a field says, in ms since the epoch; NaN if nothing. An hour that clocks leave out is the next one. */
export const fieldMs = (text, utc) => (text ? new Date(utc ? `${text}Z` : text).getTime() : NaN);

/**
 * Return {element, kind(), ms(), text(), problem()}. `text` is as `given`: "earliest", "latest", "@1700000000000" (ms)
 * or "12:40"; `problem` what is wrong with it, as a fact and a remedy, or null. `positions`: an element in place of the
 * field for one position, whose texts are its owner's.
 */
export function placeFields({ name, label, given, changed = () => {}, positions = null }) {
  const isTime = /^@-?\d{1,16}$/.test(given);
  const kind = isTime ? 'time' : isPosition(given) ? 'position' : given === 'earliest' ? 'earliest' : 'latest';
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const chosen = h('select', { name, onchange: change }, KINDS.map(([value, text]) => h('option', { value, selected: value === kind }, text)));
  const clock = h('input', { type: 'datetime-local', step: '1', name: `${name}-time`, 'aria-label': 'Time',
    value: isTime ? fieldTime(Number(given.slice(1)), false) : '', oninput: change });
  const zones = h('select', { name: `${name}-zone`, 'aria-label': 'Time zone', onchange: rezone },
    h('option', { value: 'local' }, here === 'UTC' ? 'UTC' : `${here} (here)`),
    here === 'UTC' ? null : h('option', { value: 'utc' }, 'UTC'));
  const position = h('input', { name: `${name}-position`, 'aria-label': 'Position', placeholder: '12:40', size: 14, autocomplete: 'off',
    value: kind === 'position' ? given : '', oninput: change });
  const meaning = h('span.quiet');
  const details = { earliest: [], latest: [], time: [clock, zones, meaning], position: [positions ?? position] };
  const more = h('span.place-details', {}, details[kind]);
  const element = h('span.place', {}, h('label', {}, `${label} `, chosen), more);
  let shown = kind;
  let ms = fieldMs(clock.value, false);

  function rezone() {
    if (!Number.isNaN(ms)) clock.value = fieldTime(ms, zones.value === 'utc');
    change();
  }

  function change() {
    ms = fieldMs(clock.value, zones.value === 'utc');
    tell();
    if (chosen.value !== shown) {
      shown = chosen.value;
      more.replaceChildren(...details[shown]);
    }
    changed();
  }

  function tell() {
    if (Number.isNaN(ms) || here === 'UTC') patch(meaning);
    else patch(meaning, zones.value === 'utc' ? `= ${time(ms)} here` : `= ${fieldTime(ms, true).replace('T', ' ')} UTC`);
  }

  function problem() {
    if (shown === 'time' && Number.isNaN(ms)) return { fact: 'No time is given.', remedy: 'Type a date and a time.' };
    if (shown !== 'position' || positions || isPosition(position.value.trim())) return null;
    return { fact: `“${position.value.trim()}” is no position.`, remedy: 'Type one such as 12:40, or a message’s id such as 12:40:3.' };
  }

  tell();
  return {
    element,
    kind: () => shown,
    ms: () => ms,
    problem,
    text: () => (shown === 'time' ? `@${ms}` : shown === 'position' ? position.value.trim() : shown),
  };
}
