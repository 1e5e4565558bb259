"""Where a figure is drawn, with Matplotlib, as PDF and PNG.

drawing.py    the style of all figures; calibration curves, space–time maps, maps of planes
training.py   losses and σ over the steps
sweep.py      figures of the rows of a sweep
run.py        figures of one run folder or of several side by side
write.py      draws what a folder allows: `crossreg figures`
plan.py       time and efficiency against devices: `crossreg plan`

Imports `report.looks`, `report.tables` and packages from `errors` to `cars`; `write.py` also the walk over folders of
`report.page` and the figures of `report.cars`.
"""
