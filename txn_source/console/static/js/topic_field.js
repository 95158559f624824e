/** A field for a topic's name, which suggests those that there are. */

import { get } from './api.js';
import { h, patch } from './dom.js';

/** Return {element, close()}; `chosen(name)` hears of a name that was chosen. */
export function topicField(topic, chosen) {
  const names = h('datalist', { id: 'topic-names' });
  const field = h('input', { name: 'topic', value: topic, required: true, list: 'topic-names', autocomplete: 'off', spellcheck: 'false', size: 36, oninput: suggest, onfocus: suggest });
  let asking = null;

  async function suggest() {
    asking?.abort();
    asking = new AbortController();
    try {
      const { rows } = await get('topics', { search: field.value.trim(), limit: 20, sort: 'name' }, { signal: asking.signal });
      patch(names, rows.map(({ name }) => h('option', { value: name })));
    } catch {
      // Names are a help. Whoever chooses one hears what is wrong.
    }
  }

  function choose(event) {
    event.preventDefault();
    chosen(field.value.trim());
  }

  return {
    element: h('form.toolbar', { onsubmit: choose, 'aria-label': 'Topic' }, h('label', {}, 'Topic ', field), names, h('button', { type: 'submit' }, 'Choose')),
    close: () => asking?.abort(),
  };
}
