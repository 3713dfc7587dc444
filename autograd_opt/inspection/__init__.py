"""Text, pictures, pages and reports of a graph, all made of one snapshot."""
