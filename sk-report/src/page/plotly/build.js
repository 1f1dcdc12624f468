// What plotly.js builds its own bundles with, over our choice of traces.
const { build } = require('esbuild');
const { environmentPlugin } = require('esbuild-plugin-environment');
const { glsl } = require('esbuild-plugin-glsl');

build({
  entryPoints: ['entry.js'],
  outfile: 'plotly.min.js',
  format: 'iife',
  globalName: 'Plotly',
  bundle: true,
  minify: true,
  legalComments: 'none',
  banner: { js: '/*! plotly.js 3.7.0, copyright 2012-2026 Plotly, Inc., MIT licence */' },
  plugins: [glsl({ minify: true }), environmentPlugin({ NODE_DEBUG: false })],
  alias: { stream: 'stream-browserify' },
  define: { global: 'window', 'define.amd': 'false' },
  target: 'es2016',
});
