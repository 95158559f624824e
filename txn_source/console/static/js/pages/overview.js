/** The log at one look. */

import { get } from '../api.js';
import { h } from '../dom.js';
import { heading } from '../parts.js';

export function page() {
  const element = h('div', {}, heading('Overview'));
  return { title: 'Overview', element, async update() { await get('overview'); } };
}
