"""Audits of a model: does it treat names and other groups of words alike?"""

from relprop.audit.corpus import read_texts
from relprop.audit.findings import Findings, Mention
from relprop.audit.mentions import Place, find
from relprop.audit.name_audit import names
from relprop.audit.result import NameAudit
from relprop.audit.statistics import Comparison, GroupSummary
from relprop.audit.terms import ambiguous_words, first_names, read_terms, read_words

__all__ = [
    "Comparison",
    "Findings",
    "GroupSummary",
    "Mention",
    "NameAudit",
    "Place",
    "ambiguous_words",
    "find",
    "first_names",
    "names",
    "read_terms",
    "read_texts",
    "read_words",
]
