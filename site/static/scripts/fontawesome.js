// The theme's file of this name draws its icons, which its font draws as well, in 1.5 MB.
