"""The page of `rescore report`: what a run of `rescore run` changed, as one HTML file.

`gather.py` reads the run, `analyses.py` counts, `charts.py` draws, `page.py` writes; `page.css`, `page.js` go into it.
"""
