"""The HTTP API of Anima: resources for people, inputs and reports for Jobs."""
