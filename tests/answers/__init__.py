"""Answers as learners write them, one module a lesson: right ones, wrong ones, and what each
hint has to mention. They are written apart from the checks they try."""
