// What the pages draw: scatter comes with the core.
const Plotly = require('plotly.js/lib/core');
Plotly.register([
  require('plotly.js/lib/bar'),
  require('plotly.js/lib/heatmap'),
  require('plotly.js/lib/scatter3d'),
  require('plotly.js/lib/scatterternary'),
]);
module.exports = Plotly;
