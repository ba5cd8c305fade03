"""The style sheet of the HTML report, and its only script: the filter, and where a timeline is scrolled to."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --raised: #f6f7f9; --line: #dfe3e8; --text: #1c2128; --faint:
  #68717d; --error: #c5221f; --warning: #a86500; --info: #1a66c9; --good: #1a7f37; --mark: #ffe2df; }
@media (prefers-color-scheme: dark) { :root { --ground: #14171b; --raised: #1d2126; --line: #343a42; --text:
  #e3e6ea; --faint: #98a1ac; --error: #ff7b72; --warning: #e3a33c; --info: #6cb0ff; --good: #56c271; --mark:
  #5c2a27; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 64rem; background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .7rem; }
h3 { font: 600 .95rem ui-monospace, monospace; margin: 1.8rem 0 .6rem; overflow-wrap: anywhere; }
h4 { font-size: 1rem; margin: 0; font-weight: 600; }
a { color: var(--info); }
header p, .where { color: var(--faint); margin: .2rem 0; }
.where { font-size: .85rem; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, monospace; font-size: .86em; }
code { background: var(--raised); padding: .1em .3em; border-radius: 4px; }
.figures { display: flex; gap: .7rem; flex-wrap: wrap; margin-top: 1.2rem; }
.figure { border: 1px solid var(--line); border-radius: 8px; padding: .5rem 1.1rem; min-width: 7rem; color:
  var(--faint); }
.figure b { display: block; font-size: 1.7rem; line-height: 1.2; }
.figure.error b { color: var(--error); }
.figure.warning b { color: var(--warning); }
.figure.info b { color: var(--info); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .45rem .8rem .45rem 0; border-bottom: 1px solid
  var(--line); overflow-wrap: anywhere; }
th { color: var(--faint); font-weight: 500; font-size: .85rem; white-space: nowrap; }
td:first-child, td:nth-child(2) { white-space: nowrap; }
.verdict { font-weight: 600; }
.verdict.ok { color: var(--good); }
.verdict.warning { color: var(--warning); }
.verdict.error { color: var(--error); }
.verdict.not-seen, .verdict.not-determined { color: var(--faint); font-weight: 400; }
nav { display: flex; gap: .4rem; flex-wrap: wrap; }
button { font: inherit; font-size: .85rem; color: inherit; background: var(--raised); border: 1px solid var(--line);
  border-radius: 99px; padding: .15rem .8rem; cursor: pointer; }
button i { color: var(--faint); font-style: normal; }
button.on { border-color: var(--info); color: var(--info); }
article { border: 1px solid var(--line); border-left: 4px solid var(--faint); border-radius: 6px; padding: .8rem
  1rem; margin: .7rem 0; }
article.error { border-left-color: var(--error); }
article.warning { border-left-color: var(--warning); }
article.info { border-left-color: var(--info); }
.code { font-family: ui-monospace, monospace; }
.error .code { color: var(--error); }
.warning .code { color: var(--warning); }
.info .code { color: var(--info); }
pre { background: var(--raised); border-radius: 6px; padding: .5rem 0; margin: .6rem 0; overflow-x: auto;
  line-height: 1.45; }
.line { display: block; padding-right: 1rem; min-height: 1.45em; white-space: pre; tab-size: 4; }
.number { display: inline-block; width: 3.6rem; padding-right: 1rem; text-align: right; color: var(--faint);
  user-select: none; }
mark { background: var(--mark); color: inherit; border-radius: 3px; box-shadow: 0 0 0 2px var(--mark); }
dl { margin: .4rem 0; display: grid; grid-template-columns: max-content 1fr; gap: .25rem .9rem; }
dt { color: var(--faint); }
dd { margin: 0; }
details { margin-top: .5rem; }
summary { color: var(--faint); cursor: pointer; }
.note { margin-top: .4rem; }
.note + pre { margin-top: .3rem; }
h1.error { color: var(--error); }
h1.warning { color: var(--warning); }
h1.ok { color: var(--good); }
td.why { white-space: normal; color: var(--faint); }
article:target { outline: 2px solid var(--error); outline-offset: 2px; }
.timeline { display: flex; margin-top: .6rem; border: 1px solid var(--line); border-radius: 6px; overflow: hidden; }
.names { flex: none; padding-top: 22px; background: var(--raised); border-right: 1px solid var(--line); }
.name { height: 46px; padding: 12px .7rem 0; font-size: .8rem; color: var(--faint); white-space: nowrap; }
.scroll { overflow-x: auto; flex: 1; min-width: 0; }
.timeline svg { display: block; }
.timeline .ground { fill: none; }
.timeline .ground.g1 { fill: var(--raised); }
.timeline .step { fill: var(--info); opacity: .28; }
.timeline .collective { fill: var(--warning); opacity: .65; }
.timeline .collective.open { fill: var(--error); opacity: .8; }
.timeline .write { fill: var(--good); }
.timeline .read { fill: var(--faint); opacity: .55; }
.timeline .other { fill: var(--info); }
.timeline .conflict circle { fill: var(--error); stroke: var(--ground); }
.timeline .conflict .join { stroke: var(--error); stroke-width: 1.5; stroke-dasharray: 3 2; fill: none; }
.timeline text { font: 9px system-ui, sans-serif; text-anchor: middle; fill: var(--text); pointer-events: none; }
.timeline text.number { fill: var(--ground); font-weight: 700; font-size: 8px; }
.key { margin-right: .8rem; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: .8em; height: .8em; margin-right: .35em; border-radius: 2px;
  vertical-align: -.05em; background: var(--faint); }
.key.step::before { background: var(--info); opacity: .4; }
.key.collective::before { background: var(--warning); opacity: .7; }
.key.write::before { background: var(--good); clip-path: polygon(50% 0, 100% 100%, 0 100%); }
.key.read::before { width: .25em; }
.key.conflict::before { background: var(--error); border-radius: 50%; }
[hidden] { display: none; }
@media (max-width: 40rem) { dl { grid-template-columns: 1fr; } }
@media print { nav { display: none; } article { break-inside: avoid; } }
"""
SCRIPT = """
for (const scroll of document.querySelectorAll(".scroll")) {
  const first = scroll.querySelector(".conflict circle") || scroll.querySelector(".step");
  const show = () => { if (first) scroll.scrollLeft = Math.max(0, first.getBBox().x - scroll.clientWidth / 3); };
  scroll.closest("details").addEventListener("toggle", show);
  show();
}
for (const button of document.querySelectorAll("nav button")) button.addEventListener("click", () => {
  const code = button.dataset.code;
  for (const other of document.querySelectorAll("nav button")) other.classList.toggle("on", other === button);
  for (const one of document.querySelectorAll("article")) one.hidden = code !== "" && one.dataset.code !== code;
  for (const file of document.querySelectorAll(".file")) file.hidden = !file.querySelector("article:not([hidden])");
});
"""
