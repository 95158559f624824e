/** Figures, sizes, ages and times as people read them. Absent values show as a dash. */

import { h } from './dom.js';

const NUMBER = new Intl.NumberFormat('en-US');
const COMPACT = new Intl.NumberFormat('en-US', { notation: 'compact', minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
const NONE = '–';

/** 12400 -> "12,400". */
export const number = (value) => (value === null || value === undefined ? NONE : NUMBER.format(value));

/** 12400 -> "12.4K": where room is small; the whole number belongs into a title. */
export function compact(value) {
  if (value === null || value === undefined) return NONE;
  if (Math.abs(value) >= 10_000) return COMPACT.format(value);
  return NUMBER.format(Math.abs(value) < 100 ? Math.round(value * 10) / 10 : Math.round(value));
}

/** 3, "message" -> "3 messages". */
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;

/** 1536 -> "1.5 KiB". */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 99.95 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

/** 12.34 -> "12.3/s"; null while it isn't known. */
export const rate = (value) => (value === null || value === undefined ? NONE : `${compact(value)}/s`);
export const byteRate = (value) => (value === null || value === undefined ? NONE : `${bytes(value)}/s`);

/** 252000 -> "4 min 12 s". Below zero counts as zero: clocks differ. */
export function duration(ms) {
  if (ms === null || ms === undefined) return NONE;
  const seconds = Math.max(0, Math.round(ms / 1000));
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  if (first < 0) return '0 s';
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(' ');
}

/** Ms since the epoch -> "2026-11-23 03:40:12", in the zone of the reader. */
export function time(ms) {
  if (ms === null || ms === undefined) return NONE;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value) => String(value).padStart(2, '0');
  const day = `${String(at.getFullYear()).padStart(4, '0')}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** How long ago, as an element with the absolute time as its title; `nowMs` is the service's clock. */
export function age(ms, nowMs, { suffix = '' } = {}) {
  if (ms === null || ms === undefined) return NONE;
  return h('time', { datetime: new Date(ms).toISOString(), title: time(ms) }, duration(nowMs - ms), suffix);
}

/** A link's address: path parts are encoded, null query values are left out. `href(['topics', name], {tab})`. */
export function href(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== '');
  const search = new URLSearchParams(given).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join('/')}${search ? `?${search}` : ''}`;
}
