"""Programs that make the files of the package, check the tree, and compare with other libraries."""
