"""CREATE TABLE AS: made, replaced, refused."""
