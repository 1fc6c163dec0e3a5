"use strict";
// Draws the charts: one per figure, as wide as it, in the colours of the page, with one cursor for all.
{
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const FONT = "13px system-ui, sans-serif";
  const MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  // Ticks of the time axis are whole units.
  const STEPS = [0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE,
    30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 5 * DAY, 7 * DAY, 14 * DAY, 28 * DAY,
    91 * DAY, 182 * DAY, 364 * DAY];
  const powers = (least) => [...Array(12).keys()].flatMap((power) => [1, 2, 5].map((step) => step * 10 ** power * least));
  const AMOUNTS = { percent: powers(1), gpus: [0.05, 0.1, 0.25, 0.5, ...powers(1)], count: powers(1) };

  // 90 is 1m30s; parts that are zero are left out.
  function duration(seconds) {
    if (seconds === 0) return "0";
    if (seconds < 1) return `${Math.round(seconds * 1000)}ms`;
    let rest = Math.round(seconds * 10) / 10;
    let text = "";
    for (const [unit, name] of [[DAY, "d"], [HOUR, "h"], [MINUTE, "m"], [1, "s"]]) {
      const count = unit === 1 ? Math.round(rest * 10) / 10 : Math.floor(rest / unit);
      rest -= count * unit;
      if (count > 0) text += `${count}${name}`;
    }
    return text;
  }

  const number = (value) => String(Math.round(value * 1000) / 1000);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const stepped = uPlot.paths.stepped({ align: 1 });
  const DASHES = { dashed: [9, 6], dotted: [2, 5] };

  function series({ name, colour: of, style }, unit) {
    const stroke = colour(of);
    const common = { label: name, stroke, points: { show: false },
      value: (_, value) => (value == null ? "–" : number(value) + (unit === "percent" ? " %" : "")) };
    switch (style) {
      case "bars":
        return { ...common, fill: stroke, width: 0, paths: uPlot.paths.bars({ size: [0.85, 40, 1] }) };
      case "area":
        return { ...common, fill: `${stroke}40`, width: 2, paths: stepped };
      default:
        return { ...common, dash: DASHES[style], width: style === "dotted" ? 1.5 : 2, paths: stepped };
    }
  }

  const sync = uPlot.sync("time");

  function draw(figure) {
    const { unit, end, top, seconds, series: lines } = charts[Number(figure.dataset.chart)];
    figure.plot?.destroy();
    const padding = parseFloat(getComputedStyle(figure).paddingLeft) * 2;
    const size = () => {
      const width = Math.max(200, Math.floor(figure.clientWidth - padding));
      return { width, height: Math.min(340, Math.max(220, Math.round(width / 2.6))) };
    };
    const axis = { stroke: colour("faint"), font: FONT, grid: { stroke: colour("rule"), width: 1 },
      ticks: { stroke: colour("rule"), width: 1, size: 4 } };
    const highest = () => {
      const largest = Math.max(top, ...lines.filter(({ style }) => style !== "dotted").flatMap(({ values }) => values));
      return unit === "percent" ? Math.max(100, largest) : largest;
    };
    const options = {
      ...size(),
      scales: {
        x: { time: false, range: [0, Math.max(end, 1e-6)] },
        // A tenth more, so that a line at the top is seen.
        y: { range: [0, highest() * (unit === "percent" ? 1.04 : 1.1) || 1] },
      },
      axes: [
        { ...axis, incrs: STEPS, space: 70, size: 36, values: (_, splits) => splits.map(duration) },
        { ...axis, incrs: AMOUNTS[unit], space: 28, size: 48, values: (_, splits) => splits.map(number) },
      ],
      series: [
        { label: "time", value: (_, value) => (value == null ? "–" : duration(value)) },
        ...lines.map((line) => series(line, unit)),
      ],
      cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: true, y: false }, points: { size: 7 } },
    };
    figure.plot = new uPlot(options, [seconds, ...lines.map(({ values }) => values)], figure);
    figure.size = size;
  }

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const drawAll = () => figures.forEach(draw);
  drawAll();
  const resized = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const { width, height } = target.size();
      if (width !== target.plot.width || height !== target.plot.height) target.plot.setSize({ width, height });
    }
  });
  figures.forEach((figure) => resized.observe(figure));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
}
