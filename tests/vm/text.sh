# Text on its way into a JSON string: backslash and quote escaped, control characters become spaces.
json_text() {
	tr '\000-\037' ' ' | sed 's/[\\"]/\\&/g'
}
