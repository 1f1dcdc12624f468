(() => {
  'use strict';

  /* Charts. Colours are names in the data, and values in the style: one for light, one for dark, one for print. */
  const onScreen = getComputedStyle(document.documentElement);
  const onPaper = document.styleSheets[0].cssRules[0].style;
  const color = (token, palette) => {
    const [name, opacity] = token.slice(1).split('/');
    const hex = palette.getPropertyValue(/^\d+$/.test(name) ? `--series-${name}` : `--${name}`).trim();
    if (opacity === undefined) return hex;
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return `rgba(${r},${g},${b},${opacity})`;
  };
  const paint = (node, palette, isColor = false) => {
    if (typeof node === 'string') return isColor && node[0] === '@' ? color(node, palette) : node;
    if (Array.isArray(node)) return node.map((item) => paint(item, palette, isColor));
    if (node === null || typeof node !== 'object') return node;
    return Object.fromEntries(Object.entries(node).map(([key, item]) => [key, paint(item, palette, /color(scale)?$/.test(key))]));
  };
  /* The wheel scrolls the page. A scene holds it even where it does not zoom, so that it must not get there. */
  for (const element of document.querySelectorAll('.plot')) {
    element.addEventListener('wheel', (event) => event.stopPropagation(), { capture: true, passive: true });
  }
  const plots = [...document.querySelectorAll('.plot')].map((element) => ({
    element,
    source: JSON.parse(element.nextElementSibling.textContent),
  }));
  const config = { displaylogo: false, responsive: true, scrollZoom: false, showSendToCloud: false };
  const narrow = () => window.innerWidth < 640;
  const draw = ({ element, source }) => {
    const { data, layout } = paint(source, onScreen);
    element.style.minHeight = '';
    if (source.scene && !document.createElement('canvas').getContext('webgl')) throw new Error('this browser has no WebGL');
    if (layout.xaxis && element.clientWidth < 320) layout.xaxis.nticks = 4;
    if (narrow() && source.scene) layout.height = Math.min(source.height, element.clientWidth * 1.15);
    return Plotly.react(element, data, layout, { ...config, displayModeBar: source.scene && !narrow() });
  };
  /* Paper has another width, other colours and no canvas, so that it gets a picture of each chart. */
  const picture = async ({ element, source }) => {
    const { data, layout } = paint(source, onPaper);
    const size = { width: element.clientWidth || 700, height: source.height };
    const format = source.scene ? { format: 'png', scale: 2 } : { format: 'svg' };
    const src = await Plotly.toImage({ data, layout }, { ...format, ...size });
    const image = Object.assign(document.createElement('img'), { className: 'plot-print', src, alt: element.getAttribute('aria-label') });
    element.after(image);
    element.classList.add('pictured');
  };
  const all = async (work, failed) => {
    for (const plot of plots) await Promise.resolve(plot).then(work).catch((error) => failed(plot, error));
  };
  const drawAll = () => all(draw, ({ element }, error) => {
    element.textContent = `This chart cannot be drawn here (${error.message || error}). The table has its numbers.`;
    element.classList.add('missing');
  });
  if (plots.length) {
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
    drawAll().then(() => {
      document.documentElement.dataset.drawn = plots.length;
      return all(picture, () => {});
    }).then(() => {
      document.documentElement.dataset.pictured = document.querySelectorAll('.plot-print').length;
    });
  }

  /* Tables: sorted by what stands behind a cell, saved with all digits. */
  const fields = (cell) => JSON.parse(cell.dataset.fields);
  const compare = (a, b) => {
    if (a === '' || b === '') return (a === '') - (b === '');
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, 'en', { numeric: true }) : x - y;
  };
  const sort = (table, header) => {
    const place = [...header.parentElement.children].indexOf(header);
    const ascending = header.getAttribute('aria-sort') !== 'ascending';
    for (const other of header.parentElement.children) other.removeAttribute('aria-sort');
    header.setAttribute('aria-sort', ascending ? 'ascending' : 'descending');
    const body = table.tBodies[0];
    const key = (row) => fields(row.cells[place])[0];
    const order = (a, b) => {
      const [x, y] = [key(a), key(b)];
      /* What is empty stays last. */
      return x === '' || y === '' ? compare(x, y) : (ascending ? 1 : -1) * compare(x, y);
    };
    body.append(...[...body.rows].sort(order));
  };
  const quote = (field) => (/[",\n]/.test(field) ? `"${field.replaceAll('"', '""')}"` : field);
  const csv = (table) => [...table.rows].map((row) => [...row.cells].flatMap(fields).map(quote).join(',')).join('\n') + '\n';
  for (const table of document.querySelectorAll('table[data-name]')) {
    for (const header of table.tHead.rows[0].cells) {
      const button = document.createElement('button');
      button.textContent = header.textContent;
      button.title = 'Sort';
      button.addEventListener('click', () => sort(table, header));
      header.replaceChildren(button);
    }
    const save = document.createElement('button');
    save.className = 'save';
    save.textContent = `Save as ${table.dataset.name}.csv`;
    save.addEventListener('click', () => {
      const url = URL.createObjectURL(new Blob([csv(table)], { type: 'text/csv' }));
      Object.assign(document.createElement('a'), { href: url, download: `${table.dataset.name}.csv` }).click();
      URL.revokeObjectURL(url);
    });
    table.closest('.folding').after(save);
  }

  /* Contents: closed where there is little room; otherwise they say where the reader is. */
  const contents = document.querySelector('nav details');
  if (matchMedia('(max-width: 60rem)').matches) contents.open = false;
  const links = new Map([...document.querySelectorAll('nav a')].map((link) => [link.hash.slice(1), link]));
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((seen) => seen.isIntersecting)) {
      links.forEach((link) => link.removeAttribute('aria-current'));
      links.get(entry.target.id)?.setAttribute('aria-current', 'true');
    }
  }, { rootMargin: '-10% 0px -80% 0px' });
  document.querySelectorAll('main > section').forEach((section) => watch.observe(section));
  /* A link to a table that is closed opens it. */
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && target.closest('details');
    if (closed && !closed.open) {
      closed.open = true;
      target.scrollIntoView();
    }
  };
  addEventListener('hashchange', reveal);
  reveal();
})();
