#!/usr/bin/perl
# data/rdata_text.pl FILE.rdb: the text of an R package's data, a line for each string.
#
# FILE.rdb is R's lazy-load database: objects one after the other, each as its length (4 bytes, big
# endian) and a zlib stream of its serialised form (R Internals, "Serialization Formats"; XDR):
#     "X\n", version, two R versions, and from version 3 on the length and name of an encoding;
#     then the value: flags with the type in the lowest byte, 16 a vector of strings, its length,
#     and for each string flags (type 9), length in bytes (-1: missing) and the bytes.
use strict;
use warnings;
use Compress::Zlib;

@ARGV == 1 or die "usage: $0 FILE.rdb\n";
open(my $file, '<:raw', $ARGV[0]) or die "error: cannot open $ARGV[0]; found $!\n";
my $rdb = do { local $/; <$file> };
binmode STDOUT;

sub damaged { die "error: damaged R data $ARGV[0]; found $_[0]\n" }

while (length $rdb) {
    my $size = unpack 'N', substr($rdb, 0, 4, '');
    my $stream = inflateInit() or damaged 'no zlib';
    my ($object, $status) = $stream->inflate($rdb);    # takes what it used away from $rdb
    damaged 'a broken zlib stream' unless $status == Z_STREAM_END && length $object == $size;

    my $at = 0;
    my $number = sub { $at += 4; unpack 'N', substr($object, $at - 4, 4) };
    my $bytes = sub { $at += $_[0]; substr($object, $at - $_[0], $_[0]) };
    damaged 'no XDR form' unless $bytes->(2) eq "X\n";
    my $version = $number->();
    $number->() for 1 .. 2;
    $bytes->($number->()) if $version >= 3;
    next unless ($number->() & 0xff) == 16;
    for (1 .. $number->()) {
        damaged 'no string' unless ($number->() & 0xff) == 9;
        my $length = $number->();
        print $length == 0xffffffff ? 'NA' : $bytes->($length), "\n";
    }
}
