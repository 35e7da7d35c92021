"""How pages of results look, on a screen by day and night, on a phone and on paper.

Blue and vermilion are told apart by all who see colours, and neither says anything that words
beside it do not.
"""

from typing import Final

_DAY: Final = (
    "--ink:#1c2026;--soft:#5a626d;--line:#e1e5ea;--paper:#fff;--shade:#f5f7f9;"
    "--ours:#0072b2;--theirs:#a9b2bd;--bad:#b04300;--edge:#1c2026"
)
_NIGHT: Final = (
    "--ink:#e4e8ec;--soft:#98a2ae;--line:#2b3239;--paper:#14171a;--shade:#1b1f24;"
    "--ours:#4aa8e0;--theirs:#5b6571;--bad:#f2975c;--edge:#f4f6f8"
)

STYLE: Final = f"""
:root{{color-scheme:light dark;{_DAY}}}
@media (prefers-color-scheme:dark){{:root{{{_NIGHT}}}}}
*{{box-sizing:border-box}}
html{{-webkit-text-size-adjust:100%;text-size-adjust:100%}}
body{{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}}
main{{max-width:78rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}}
h1{{font-size:1.75rem;line-height:1.2;letter-spacing:-.015em;font-weight:650;margin:0}}
h2{{font-size:1.2rem;letter-spacing:-.005em;margin:3rem 0 .5rem;line-height:1.3}}
h3{{font-size:1rem;margin:0;line-height:1.4}}.wide+h3{{margin-top:1.6rem}}
h4{{font-size:.85rem;font-weight:600;color:var(--soft);margin:1.2rem 0 .2rem}}
p{{margin:.35rem 0;max-width:46rem;overflow-wrap:anywhere}}
a{{color:inherit;text-decoration-color:var(--theirs);text-underline-offset:.2em}}
a:hover{{text-decoration-color:currentColor}}
a:focus-visible,summary:focus-visible,.wide:focus-visible{{outline:2px solid var(--ours);
outline-offset:2px}}
code{{font:.92em/1.4 ui-monospace,"SF Mono",Menlo,Consolas,monospace}}
.lede,.what,.clean,small{{color:var(--soft)}}
.lede{{font-size:1.05rem;margin-top:.5rem}}
.facts{{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:.8rem 1.5rem;
margin:1.2rem 0;padding:1rem 1.2rem;background:var(--shade);border-radius:6px}}
.facts div{{min-width:0}}
dt{{font-size:.8rem;color:var(--soft)}}
dd{{margin:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}}
.wide{{overflow-x:auto;margin:.6rem 0}}
table{{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums}}
caption{{text-align:left;font-size:.8rem;color:var(--soft);padding-bottom:.15rem;
white-space:nowrap}}
th,td{{text-align:left;padding:.28rem .8rem .28rem 0;vertical-align:top;
border-bottom:1px solid var(--line)}}
thead th{{font-weight:500;font-size:.8rem;color:var(--soft);vertical-align:bottom;
white-space:nowrap}}
tbody th{{font-weight:500;max-width:20rem;overflow-wrap:break-word}}th:has(a){{min-width:15rem}}
th.n,td.n{{text-align:right;white-space:nowrap}}
td svg.bar{{display:block;margin-top:.2rem}}
.us{{font-weight:650;color:var(--ours)}}
.mode{{font-size:.8rem;font-weight:500;color:var(--soft);border:1px solid var(--line);
border-radius:1em;padding:.05em .6em;margin-left:.4em;white-space:nowrap}}
.bad{{color:var(--bad);font-weight:600}}
.card{{padding:1.3rem 0 1rem;border-top:1px solid var(--line)}}
.card:target{{border-top-color:var(--ours)}}
.pair{{display:flex;flex-wrap:wrap;gap:0 2rem}}
.pair>.wide{{min-width:0;max-width:100%}}
.rates{{display:grid;grid-template-columns:repeat(auto-fill,minmax(12rem,1fr));gap:.7rem 1.6rem;
margin:.3rem 0 .8rem;max-width:60rem}}
figure{{margin:0;min-width:0}}
figcaption{{font-size:.8rem;color:var(--soft);overflow-wrap:anywhere}}
svg{{max-width:100%;height:auto;overflow:visible}}
svg.rate{{display:block;width:100%}}
svg text{{font-size:10px;fill:var(--soft)}}
.bar rect,.rate .area{{fill:var(--theirs)}}
.bar.ours rect,.rate.ours .area{{fill:var(--ours)}}
.bar path{{fill:none;stroke:var(--edge);stroke-width:1.2}}
.rate .area{{opacity:.22}}
.rate .line{{fill:none;stroke:var(--theirs);stroke-width:1.6;stroke-linejoin:round}}
.rate.ours .line{{stroke:var(--ours)}}
.rate .floor{{fill:none;stroke:var(--line);stroke-width:1}}
summary{{cursor:pointer;font-size:.85rem;color:var(--soft);width:max-content}}
footer{{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--soft);
font-size:.85rem}}
@media (max-width:40rem){{main{{padding:1.5rem 1rem 3rem}}h1{{font-size:1.45rem}}
th:has(a){{min-width:0}}.bar{{width:8rem}}}}
@media print{{:root{{color-scheme:light;{_DAY}}}
body{{font-size:9.5pt}}main{{max-width:none;padding:0}}
.wide{{overflow:visible}}.card,tr,figure{{break-inside:avoid}}h2,h3,h4{{break-after:avoid}}
.facts{{border:1px solid var(--line);padding:.6rem .8rem}}
.bar,.rate,.facts{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
details::details-content{{content-visibility:visible;block-size:auto}}a{{text-decoration:none}}}}
"""
