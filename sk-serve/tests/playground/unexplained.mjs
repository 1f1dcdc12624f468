// Finds numbers without a unit or an explanation. This script runs in the page.

// Returns the texts that contain a number with neither a unit beside it nor an explanation that the
// keyboard can reach, and the ids of number and range inputs without an explanation.
export function unexplained() {
  const FOREIGN = '#steered, #beside-answer, .question, blockquote, textarea, option, pre, .text, #own-blades, .branch > :first-child, #served';
  const UNIT = /%|tokens?|spans?|steps?|\bs\b|points|nats|messages|answers|no unit|^(Step|Turn) \d+/i;
  const BLOCK = 'p, li, h2, h3, label, legend, summary, figcaption, td, th, button, .share';
  const reached = [...document.querySelectorAll('[data-tip]:is(a, button, input, select, textarea, [tabindex="0"])')];
  const tips = new Set(reached.map((element) => element.dataset.tip));
  const isExplained = (element) => {
    const tip = element.closest('[data-tip]')?.dataset.tip;
    if (tip && tips.has(tip)) return true;
    if (element.closest('[role="slider"][tabindex="0"]')) return true;
    const block = element.closest(BLOCK) ?? element;
    if (UNIT.test(block.textContent) || block.querySelector('[data-tip][tabindex="0"]')) return true;
    const cell = element.closest('td, th');
    const head = cell?.closest('table').tHead?.rows[0].cells[cell.cellIndex];
    return Boolean(head && (UNIT.test(head.textContent) || head.querySelector('[data-tip][tabindex="0"]')));
  };
  const numbers = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (/\d/.test(node.data) && element.checkVisibility() && !element.closest(FOREIGN) && !isExplained(element)) numbers.push(`${element.className || element.tagName}: ${node.data.trim()}`);
  }
  const fields = [...document.querySelectorAll('input[type="number"], input[type="range"]')].filter((input) => !input.dataset.tip);
  return [...numbers, ...fields.map(({ id }) => `#${id}`)];
}
