/** A field for a topic's name, which suggests those that there are. */

import { get } from './api.js';
import { h, patch } from './dom.js';
import { number } from './format.js';

const SUGGESTED = 20;

/**
 * Return {element, close()}. `to(name)` is the address that a chosen topic leads to. Where none is chosen yet the
 * suggestions are a list of links, too.
 */
export function topicField(topic, to) {
  const names = h('datalist', { id: 'topic-names' });
  const links = h('ul.suggested', { 'aria-label': 'Topics' });
  const field = h('input', { name: 'topic', 'data-search': !topic, value: topic, required: true, list: 'topic-names', size: 36,
    autocomplete: 'off', spellcheck: 'false', oninput: suggest, onfocus: suggest });
  let asking = null;

  async function suggest() {
    asking?.abort();
    asking = new AbortController();
    try {
      const { rows, total } = await get('topics', { search: field.value.trim(), limit: SUGGESTED, sort: 'name' }, { signal: asking.signal });
      patch(names, rows.map(({ name }) => h('option', { value: name })));
      if (topic) return;
      patch(links, rows.map(({ name }) => h('li', { key: name }, h('a', { href: to(name) }, name))),
        total > rows.length ? h('li.quiet', {}, `and ${number(total - rows.length)} more: type a part of the name`) : null);
    } catch {
      // Names are a help. Whoever chooses one hears what is wrong.
    }
  }

  function choose(event) {
    event.preventDefault();
    location.hash = to(field.value.trim());
  }

  if (!topic) suggest();
  return {
    element: h('div', {},
      h('form.toolbar', { onsubmit: choose, 'aria-label': 'Which topic' }, h('label', {}, 'Topic ', field), names, h('button', { type: 'submit' }, 'Choose')),
      topic ? null : links),
    close: () => asking?.abort(),
  };
}
