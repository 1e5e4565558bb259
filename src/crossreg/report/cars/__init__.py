"""The table, the figures and the page of a car experiment, from its folder.

run       reads the folder: test cars, predictions, histories and scores
figures   surfaces, rooflines, σ per site, calibration and methods, as PDF and PNG
table     scores as text: `crossreg car`
page      one self-contained page, with page.html, page.css and page.js

May import what `report` may, and all of `report` but `watch`.
"""
