// The docs of this service: its address, and tables from its own description.

import { byId, make, table } from './dom.js';
import { get } from './service.js';
import { visible } from './words.js';

const BODY = '{"instances": ["a gorgeous, witty film"], "parameters": {"method": "lrp_conservative", "words": true}}';

byId('curl').textContent = `curl -s ${location.origin}/v1/models/NAME:explain -H 'Content-Type: application/json' \\\n`
  + `  -d '${BODY}'`;

const rows = (caption, columns, cells) => make('div', { class: 'scroll', tabindex: 0, role: 'region',
  'aria-label': caption }, table(caption, columns, cells));

const firstLine = (text = '') => text.split('\n')[0];

function filled({ paths, components: { schemas } }) {
  const routes = Object.entries(paths).flatMap(([path, verbs]) => Object.entries(verbs).map(([verb, about]) =>
    [`${verb.toUpperCase()} ${path}`, firstLine(about.description ?? about.summary)]));
  const { options, ...others } = schemas.Parameters.properties;
  const parameters = Object.entries({ ...others, options }).map(([name, { description = '' }]) => [name, description]);
  const methods = options.anyOf.map(({ title, properties }) => [title, Object.entries(properties)
    .map(([name, schema]) => `${name} = ${JSON.stringify(schema.default)}`).join(', ') || 'none']);
  byId('routes').replaceChildren(rows('Requests', ['request', 'answer'], routes));
  byId('parameters').replaceChildren(rows('Parameters', ['name', 'meaning'], parameters));
  byId('methods-table').replaceChildren(rows('Methods', ['method', 'options'], methods));
}

get('/openapi.json').then(filled, (error) => {
  byId('routes').replaceChildren(make('p', { class: 'error' }, visible(error.message)));
});
