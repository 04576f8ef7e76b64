namespace headrace {}
