"""Where a table is made, from the rows of a sweep to table.md, table.csv, table.tex and the text in a terminal.

comparison.py          rows → lines: one method in one regime, with means, 95% intervals and who is clearly best
verdicts.py            lines → sentences (best, level, behind) and counts of regimes
comparison_tables.py   lines → cells: scores, counts, settings, residuals
layout.py              cells → aligned text and Markdown
write.py               writes the files: `crossreg sweep`, `crossreg table`
curves.py              lines that form one curve, for figures and pages
scores.py              scores of single runs as text: `crossreg train`, `evaluate`, `quickstart`
forecasts.py           scores of forecasts by lead, of a run and of the methods of a sweep

May import `report/looks.py` and what `report` may; neither figures nor pages.
"""
