/** A small line of how a figure went, with its least and greatest value in words. */

import { s } from './dom.js';
import { duration } from './format.js';

const HEIGHT = 36;
const WIDTH = 200;

/** `points`: [[ms, value or null], ...] in order of time; nothing is drawn of fewer than two. */
export function sparkline(points, { name, text }) {
  const known = points.filter(([, value]) => value !== null && value !== undefined);
  if (known.length < 2) return null;
  const [first, last] = [known[0][0], known.at(-1)[0]];
  const most = Math.max(...known.map(([, value]) => value));
  const least = Math.min(...known.map(([, value]) => value));
  const x = (t) => (((t - first) / Math.max(1, last - first)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 2 - (value / Math.max(most, 1e-9)) * (HEIGHT - 4)).toFixed(1);
  const line = known.map(([t, value], at) => `${at ? 'L' : 'M'}${x(t)} ${y(value)}`).join('');
  const words = `${name} in the last ${duration(last - first)}: ${text(least)} to ${text(most)}, now ${text(known.at(-1)[1])}`;
  return s('svg', { class: 'sparkline', role: 'img', 'aria-label': words, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none' }, s('title', {}, words),
    s('path', { class: 'area', d: `${line}L${x(last)} ${HEIGHT}L${x(first)} ${HEIGHT}Z` }),
    s('path', { class: 'line', d: line, 'vector-effect': 'non-scaling-stroke' }));
}
