"""Render what commands print: tables as plain text, and reports of findings for people and programs."""

from allranks.report.columns import character_width as character_width
from allranks.report.columns import display_width as display_width
from allranks.report.columns import format_table as format_table
