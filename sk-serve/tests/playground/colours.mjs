// Differences between colours, for normal vision and for vision without one kind of cone.

// Machado, Oliveira, Fernandes: A Physiologically-based Model for Simulation of Color Vision
// Deficiency, 2009, at severity 1.0. The matrices are for linear RGB.
const VISIONS = {
  'all cones': [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

// From linear sRGB to XYZ under D65.
const XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]];

const times = (matrix, vector) => matrix.map((row) => row.reduce((sum, value, k) => sum + value * vector[k], 0));
const linear = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255).map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
const seen = (matrix, hex) => times(matrix, linear(hex)).map((value) => Math.min(1, Math.max(0, value)));

function lab(rgb) {
  const white = times(XYZ, [1, 1, 1]);
  const [x, y, z] = times(XYZ, rgb).map((value, k) => value / white[k]).map((value) => (value > 216 / 24389 ? Math.cbrt(value) : ((24389 / 27) * value + 16) / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

const radians = (degrees) => (degrees * Math.PI) / 180;

// The CIEDE2000 difference, after Sharma, Wu and Dalal (2005).
export function difference([l1, a1, b1], [l2, a2, b2]) {
  const c = (Math.hypot(a1, b1) + Math.hypot(a2, b2)) / 2;
  const g = 0.5 * (1 - Math.sqrt(c ** 7 / (c ** 7 + 25 ** 7)));
  const [p1, p2] = [(1 + g) * a1, (1 + g) * a2];
  const [c1, c2] = [Math.hypot(p1, b1), Math.hypot(p2, b2)];
  const hue = (a, b) => (a === 0 && b === 0 ? 0 : ((Math.atan2(b, a) * 180) / Math.PI + 360) % 360);
  const [h1, h2] = [hue(p1, b1), hue(p2, b2)];
  const isGrey = c1 * c2 === 0;
  const turn = h2 - h1 > 180 ? h2 - h1 - 360 : h2 - h1 < -180 ? h2 - h1 + 360 : h2 - h1;
  const dh = isGrey ? 0 : 2 * Math.sqrt(c1 * c2) * Math.sin(radians(turn / 2));
  const l = (l1 + l2) / 2;
  const m = (c1 + c2) / 2;
  const h = isGrey ? h1 + h2 : Math.abs(h1 - h2) <= 180 ? (h1 + h2) / 2 : (h1 + h2 + (h1 + h2 < 360 ? 360 : -360)) / 2;
  const t = 1 - 0.17 * Math.cos(radians(h - 30)) + 0.24 * Math.cos(radians(2 * h)) + 0.32 * Math.cos(radians(3 * h + 6)) - 0.2 * Math.cos(radians(4 * h - 63));
  const sl = 1 + (0.015 * (l - 50) ** 2) / Math.sqrt(20 + (l - 50) ** 2);
  const sc = 1 + 0.045 * m;
  const sh = 1 + 0.015 * m * t;
  const rt = -Math.sin(radians(60 * Math.exp(-(((h - 275) / 25) ** 2)))) * 2 * Math.sqrt(m ** 7 / (m ** 7 + 25 ** 7));
  return Math.hypot((l2 - l1) / sl, Math.sqrt(((c2 - c1) / sc) ** 2 + (dh / sh) ** 2 + rt * ((c2 - c1) / sc) * (dh / sh)));
}

// The pair of colours (`#rrggbb`) with the smallest difference, the vision for which it is
// smallest, and the difference.
export function nearest(colours) {
  const pairs = Object.entries(VISIONS).flatMap(([vision, matrix]) => {
    const points = colours.map((colour) => lab(seen(matrix, colour)));
    return points.flatMap((one, i) => points.slice(i + 1).map((other, k) => ({ vision, pair: [colours[i], colours[i + 1 + k]], apart: difference(one, other) })));
  });
  return pairs.reduce((least, pair) => (pair.apart < least.apart ? pair : least));
}
