"""How the report's page looks."""

CSS = """
:root{color-scheme:light dark;--ink:#1f2328;--soft:#5b636d;--line:#dfe3e8;--ground:#ffffff;--faint:#f5f7f9;
 --link:#0b62b0;
 --ink:light-dark(#1f2328,#e4e7eb);--soft:light-dark(#5b636d,#9aa4b0);--line:light-dark(#dfe3e8,#343a43);
 --ground:light-dark(#ffffff,#181a1f);--faint:light-dark(#f5f7f9,#20242b);--link:light-dark(#0b62b0,#6cb2f2)}
*{box-sizing:border-box}
body{margin:0;padding:0;background:var(--ground);color:var(--ink);
 font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif}
main{max-width:1100px;margin:0 auto;padding:2.5rem 1.5rem 5rem}
h1{font-size:1.75rem;line-height:1.25;margin:0 0 .75rem;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:1.25rem;margin:3.25rem 0 1rem;padding-top:.9rem;border-top:1px solid var(--line);overflow-wrap:anywhere}
h3{font-size:1.05rem;margin:2rem 0 .5rem}
p,main>ul{max-width:46rem;overflow-wrap:anywhere}
a{color:var(--link)}
.soft{color:var(--soft)}
p.soft,ul.soft{font-size:.875rem}
ul.soft{padding-left:1.1rem}
nav ul{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:1.25rem 0 0;padding:0;list-style:none;font-size:.9375rem}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
.wide{overflow-x:auto;margin:1.5rem 0 .75rem}
.wide:focus-visible{outline:2px solid var(--link);outline-offset:2px}
table{border-collapse:separate;border-spacing:0;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;font-size:.9375rem;padding:0 0 .5rem}
caption span{position:sticky;left:0;display:inline-block;max-width:min(46rem,calc(100vw - 2rem));overflow-wrap:anywhere}
th,td{padding:.32rem .7rem;text-align:left;vertical-align:baseline}
thead th{font-weight:500;color:var(--soft);border-bottom:1px solid var(--line);vertical-align:bottom}
thead tr:first-child:not(:last-child) th[scope=colgroup]{border-bottom:0;padding-bottom:0;padding-left:1.4rem;
 color:var(--ink);font-weight:600}
.numbers td,.numbers thead th[scope=col]{text-align:right;white-space:nowrap}
.numbers thead tr:first-child th:first-child{text-align:left}
.words td{overflow-wrap:anywhere;max-width:40rem}
.numbers .first{padding-left:1.4rem}
tbody th{font-weight:500;white-space:nowrap}
tbody th code{color:var(--soft);font-size:.75rem;margin-left:.3rem}
tbody tr:hover td,tbody tr:hover th{background:var(--faint)}
tbody tr:last-child td,tbody tr:last-child th{border-bottom:1px solid var(--line)}
tr.apart td,tr.apart th{border-top:1px solid var(--line);color:var(--soft);font-style:italic}
tbody th,thead tr:first-child th:first-child{position:sticky;left:0;background:var(--ground);padding-left:0;z-index:1}
strong{font-weight:700}
td.soft strong{color:var(--ink)}
code,pre{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
pre{background:var(--faint);border-radius:.4rem;padding:.8rem 1rem;font-size:.8125rem;line-height:1.5;
 white-space:pre-wrap;overflow-wrap:anywhere}
figure{margin:1.75rem 0}
figcaption{font-weight:600;font-size:.9375rem;margin-bottom:.6rem;overflow-wrap:anywhere}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;margin:0 0 .6rem;padding:0;list-style:none;font-size:.8125rem}
.legend i{display:inline-block;width:1.6rem;margin-right:.4rem;vertical-align:middle}
.panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr));gap:1rem 1.25rem}
.panels svg{width:100%;max-width:28rem;height:auto;stroke-linejoin:round}
.panels svg text{font-family:inherit!important}
.images{display:flex;flex-wrap:wrap;gap:1rem}
.images span{display:block;font-size:.8125rem;color:var(--soft)}
.images img{display:block;max-width:100%;height:auto}
.images .png{width:min(10.5rem,45%)}
.images .png img{width:100%}
.images .svg{max-width:100%;background:#fff;padding:.5rem;border-radius:.4rem}
figure.texts .relprop{max-width:none;padding:.25rem 0}
@media (max-width:40rem){main{padding:1.5rem 1rem 4rem}.words td{min-width:6rem}
 tbody th{white-space:normal;min-width:7rem;max-width:9rem}
 tbody th code{display:block;margin:0;overflow-wrap:anywhere}}
@media print{.wide{overflow:visible}nav{display:none}}
"""
