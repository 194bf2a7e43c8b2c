"""How report pages look, and the few lines of script that draw their figures."""

from __future__ import annotations

from routewright.report.figures.style import FONT

CSS = (
    """
:root {
  --ink: #1f2328; --soft: #57606a; --line: #d0d7de; --wash: #f6f8fa;
  --good: #00664a; --good-wash: #e3f4ee; --plain: #0b4f7d; --plain-wash: #e4f0f8;
  --warn: #8a3d00; --warn-wash: #fdeee0;
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: white; line-height: 1.5; font-size: 16px;
  font-family: FONT; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 24px 8px; }
footer { max-width: 1040px; margin: 0 auto; padding: 16px 24px 40px; color: var(--soft);
  font-size: 13px; border-top: 1px solid var(--line); overflow-wrap: anywhere; }
h1 { font-size: 30px; line-height: 1.25; margin: 6px 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 21px; margin: 40px 0 12px; padding-bottom: 6px;
  border-bottom: 1px solid var(--line); }
p { margin: 8px 0; overflow-wrap: anywhere; }
.over { color: var(--soft); margin: 0; overflow-wrap: anywhere; }
.badge { display: inline-block; padding: 2px 12px; border-radius: 12px; font-weight: 600;
  font-size: 14px; border: 1px solid currentColor; }
.badge.good { color: var(--good); background: var(--good-wash); }
.badge.plain { color: var(--plain); background: var(--plain-wash); }
.badge.warn { color: var(--warn); background: var(--warn-wash); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px;
  margin: 20px 0 8px; padding: 0; list-style: none; }
.cards li { border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px;
  background: var(--wash); }
.cards .name { display: block; color: var(--soft); font-size: 13px; }
.cards .value { display: block; font-size: 24px; font-weight: 600; line-height: 1.3;
  overflow-wrap: anywhere; }
.cards .detail { display: block; color: var(--soft); font-size: 13px; overflow-wrap: anywhere; }
dl.answers { display: grid; grid-template-columns: max-content 1fr; gap: 8px 24px; margin: 0; }
dl.answers dt { font-weight: 600; }
dl.answers dd { margin: 0; overflow-wrap: anywhere; }
pre { background: var(--wash); border: 1px solid var(--line); border-radius: 8px;
  padding: 10px 14px; margin: 8px 0; white-space: pre-wrap; overflow-wrap: anywhere;
  font-size: 14px; user-select: all; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, 'Liberation Mono',
  monospace; word-break: break-all; }
.label { font-weight: 600; margin: 14px 0 0; }
figure { margin: 20px 0 28px; }
figcaption { color: var(--soft); font-size: 14px; margin-top: 4px; }
.plot { width: 100%; }
.scroll { overflow-x: auto; margin: 10px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
caption { text-align: left; color: var(--soft); padding: 4px 0; font-size: 14px; }
th, td { padding: 5px 10px; border-bottom: 1px solid var(--line); text-align: left;
  vertical-align: top; }
th { border-bottom: 2px solid var(--line); white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums;
  white-space: nowrap; }
td code { font-size: 13px; }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; }
ul.notes { padding-left: 20px; }
body.paper main, body.paper footer { max-width: 690px; padding-left: 0; padding-right: 0; }
body.paper { font-size: 13px; }
body.paper table, body.paper pre, body.paper caption { font-size: 11px; }
body.paper th { white-space: normal; }
body.paper th, body.paper td { padding: 3px 6px; }
body.paper .modebar { display: none; }
@media (max-width: 640px) { dl.answers { grid-template-columns: 1fr; gap: 2px; }
  dl.answers dd { margin-bottom: 10px; } }
@media print {
  @page { size: A4; margin: 14mm; }
  main, footer { max-width: none; padding: 0; }
  figure, .cards li, tr, pre { break-inside: avoid; }
  h2 { break-after: avoid; }
  .modebar { display: none; }
  .cards li, pre, .badge { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
).replace("FONT", FONT)

SCRIPT = """
(function () {
  "use strict";
  var options = {displaylogo: false, responsive: true};
  var plots = [];
  var paper = document.body.classList.contains("paper");
  document.querySelectorAll("script.figure").forEach(function (script) {
    var target = document.getElementById(script.dataset.plot);
    var drawing = JSON.parse(script.textContent);
    if (paper && drawing.layout.height > 400 && drawing.layout.height < 500) {
      drawing.layout.height = 390;  // two on a sheet
      target.style.minHeight = "390px";
    }
    Plotly.newPlot(target, drawing.data, drawing.layout, options);
    plots.push(target);
  });
  // Paper is narrower than most screens, and Plotly keeps the width it was drawn at.
  window.addEventListener("beforeprint", function () {
    plots.forEach(function (plot) { Plotly.relayout(plot, {width: 680}); });
  });
  window.addEventListener("afterprint", function () {
    plots.forEach(function (plot) { Plotly.relayout(plot, {width: null, autosize: true}); });
  });
})();
"""
