"""Where a figure is drawn, with Matplotlib, as PDF and PNG.

drawing.py    the style of all figures; calibration curves, space–time maps, maps of planes
training.py   losses and σ over the steps
sweep.py      figures of the rows of a sweep
run.py        figures of one run folder or of several side by side
write.py      draws what a folder allows: `crossreg figures`
plan.py       time and efficiency against devices: `crossreg plan`
forecasts.py  forecasts by lead, and at every point

Imports `report.looks`, `report.tables` and what `report` may; `write.py` also the walk over folders of
`report.page` and the figures of `report.cars`.
"""
