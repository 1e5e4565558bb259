"""What people read: tables, figures and pages. Nothing here trains or scores.

looks.py        colours of methods and their order, for tables, figures and pages alike
tables/         where a table is made: the tables of a sweep, its verdicts, scores as text (of cars: cars/table.py)
figures/        PDF and PNG figures of runs and sweeps: `crossreg figures`
page/           the page of `crossreg report`
watch/          the server of `crossreg watch`
cars/           table, figures and page of car experiments
shared/         style and scripts of all pages
data_check.py   text and picture of `crossreg data check`
plan_text.py    the text of `crossreg plan`
offline.py      what lets a page open offline: its policy, and templates

`tables` imports none of the others, `figures` and the pages import `tables`. All may import the packages before
`report` (`crossreg/__init__.py` has the order), but `export`.
"""
